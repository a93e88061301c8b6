"""History on disk: what every GPU and the host were like, what happened, and when nobody looked.

A row a GPU every 5 s, with the worst of those seconds, for a week; then a row a minute, with the worst of that
minute, for 90 days in all and at most 1 GiB (Keep). Eight GPUs make about 10 MiB a day of full rows (tests/bench).
The seconds between are in the ring in memory and in evidence bundles.

`record` runs in the cycle's thread and only collects; a Worker writes. When the disk fails, ticks wait in memory
for ten minutes; those that fall out are lost, and the first tick that is written again has a gap before it with
the reason. Nothing else depends on this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Callable, Optional

from gpuwatch.model.errors import StoreError
from gpuwatch.model.event import Event
from gpuwatch.model.gpu import DriverState, GpuReport, GpuSample
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import Reading
from gpuwatch.store.history_file import HistoryFile
from gpuwatch.store.history_retention import fold_known
from gpuwatch.store.history_rows import LOST, READ, UNREADABLE, Batch, GpuRow, Keep, NotedEvent, Tick, Values
from gpuwatch.store.history_schema import GPU_COLUMNS, HOST_COLUMNS, SLOW_COLUMNS, Column
from gpuwatch.system.protocols import Clock, Task, Worker

PERIOD_S = 5.0
FRESH_S = 3.0  # older samples are no answer of the driver
LATE = "late"  # the driver's state is "ok", and yet its last answer is older than that
EARLY_S = 0.3  # a cycle that comes this much before its time still serves the tick
MOST_REPORTS = 60  # that a tick looks back on
MOST_TICKS = 120  # that wait for the disk
MOST_EVENTS = 2000  # the same
EVENTS_A_MINUTE = 600  # kept one by one; more are counted by kind and GPU
FIRST_RETRY_S, LAST_RETRY_S = 5.0, 60.0
SLOW_DISK_S = 10.0  # a write that takes longer is a problem to be shown

_NEVER = Instant("", 0.0, 0.0)

IncidentOf = Callable[[Event], Optional[int]]


def nobody(event: Event) -> Optional[int]:
    """No incident is known."""
    return None


class History:
    """`period_s` is the time between two ticks: the timer's, where each pass is a process of its own.

    One instance a host writes (the lock sees to it). `problem` is "" or why nothing is being written.
    """

    def __init__(
        self, path: str, worker: Worker, clock: Clock, period_s: float = PERIOD_S, keep: Optional[Keep] = None
    ) -> None:
        self._path, self._worker, self._clock = path, worker, clock
        self._period_s = period_s
        self._file = HistoryFile(path, period_s, keep or Keep())
        self._ticks: list[Tick] = []
        self._events: list[NotedEvent] = []
        self._last: Optional[Instant] = None
        self._reports: list[GpuReport] = []  # since the last tick
        self._taken: Optional[Instant] = None  # of the newest in the last tick
        self._flood = _Flood()
        self._slow_taken: dict[str, Optional[Instant]] = {}  # by UUID, of what was written last
        self._lost, self._why_lost = 0, ""
        self._sent: Optional[Batch] = None
        self._task: Optional[Task[str]] = None
        self._retry_at, self._retry_s = 0.0, FIRST_RETRY_S
        self.problem = ""

    def record(
        self,
        report: GpuReport,
        host_readings: Mapping[str, Reading],
        events: Iterable[Event],
        now: Instant,
        incident_of: IncidentOf = nobody,
    ) -> None:
        """Take in what a cycle saw; called once a cycle. Never blocks and never raises."""
        self._settle()
        admitted = self._flood.admit(events, now)
        uuids = {sample.pci: sample.uuid for sample in report.samples} if admitted else {}
        for event in admitted:
            placed = _on_its_gpu(event, uuids)
            self._events.append(NotedEvent(placed, incident_of(placed)))
        self._keep_report(report)
        if self._due(now):
            tick = self._tick(report, host_readings, now)
            if tick is not None:
                self._last = now
                self._ticks.append(tick)
        self._forget()
        self._send()

    def close(self, wait_s: float = 1.0) -> None:
        """Write what waits, as far as the disk takes it within `wait_s` seconds, and let go."""
        if self._task is not None and not self._worker.wait(self._task, wait_s):
            return  # left behind with the disk that does not answer
        self._settle()
        self._events += map(NotedEvent, self._flood.summed_up())
        self._send()
        if self._task is None or self._worker.wait(self._task, wait_s):
            self._settle()
            self._worker.wait(self._worker.submit(self._file.close), wait_s)

    # What a tick is

    def _due(self, now: Instant) -> bool:
        since = None if self._last is None else now.since(self._last)
        return since is None or since >= self._period_s - EARLY_S

    def _keep_report(self, report: GpuReport) -> None:
        """An answer of the driver counts once."""
        last = self._reports[-1].taken if self._reports else self._taken
        if report.state is DriverState.OK and report.taken is not None and report.taken != last:
            self._reports.append(report)
            del self._reports[:-MOST_REPORTS]

    def _tick(self, report: GpuReport, host_readings: Mapping[str, Reading], now: Instant) -> Optional[Tick]:
        """None while a driver that was just asked for the first time has not answered."""
        reports, self._reports = self._reports, []
        if report.state is DriverState.STARTING:
            return None
        host = _values(HOST_COLUMNS, host_readings.get)
        newest = reports[-1] if reports else None
        since = None if newest is None or newest.taken is None else now.since(newest.taken)
        if report.state is not DriverState.OK or newest is None or since is None or since > FRESH_S:
            driver = LATE if report.state is DriverState.OK else report.state.value
            return Tick(now, driver, report.reason, host, ())
        self._taken = newest.taken
        return Tick(newest.taken or now, "", "", host, tuple(self._row(sample, reports) for sample in newest.samples))

    def _row(self, newest: GpuSample, reports: Sequence[GpuReport]) -> GpuRow:
        """One card over the seconds of a tick: what is kept of each metric is its column's to say."""
        samples = [sample for report in reports for sample in report.samples if sample.uuid == newest.uuid]
        readings = [sample.readings for sample in samples]
        values = tuple(_folded(readings, column) for column in GPU_COLUMNS)
        state = READ
        if any(sample.lost is not None for sample in samples):
            state = LOST
        elif all(value is None for value in values):
            state = UNREADABLE
        slow: Values = ()
        if newest.lost is None and self._slow_taken.get(newest.uuid, _NEVER) != newest.slow_taken:
            self._slow_taken[newest.uuid] = newest.slow_taken
            slow = _values(SLOW_COLUMNS, newest.reading)
        return GpuRow(newest.uuid, newest.index, newest.name, newest.pci, state, values, slow)

    # The way to the disk

    def _send(self) -> None:
        idle = self._task is None and self._clock.monotonic() >= self._retry_at
        if not idle or not (self._ticks or self._events):
            return
        batch = Batch(tuple(self._ticks), tuple(self._events), self._lost, self._why_lost)
        self._ticks, self._events = [], []
        self._lost, self._why_lost = 0, ""
        self._sent = batch
        self._task = self._worker.submit(lambda: self._file.write(batch))
        self._settle()

    def _settle(self) -> None:
        """Take the result of a finished write into account."""
        if self._task is None or self._sent is None:
            return
        if not self._task.done():
            if self._task.age_s() > SLOW_DISK_S:
                self.problem = f"{self._path}: the disk does not answer"
            return
        task, batch = self._task, self._sent
        self._task = self._sent = None
        try:
            self.problem = task.result()
        except StoreError as error:
            self.problem = str(error)
            self._take_back(batch)
            self._retry_at = self._clock.monotonic() + self._retry_s
            self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)
        else:
            self._retry_s = FIRST_RETRY_S

    def _take_back(self, batch: Batch) -> None:
        self._ticks[:0] = batch.ticks
        self._events[:0] = batch.events
        self._lost += batch.lost
        self._why_lost = self._why_lost or batch.why_lost

    def _forget(self) -> None:
        """What waits is bounded; the oldest is lost, and the reason kept for the gap."""
        surplus = len(self._ticks) - MOST_TICKS
        if surplus > 0:
            del self._ticks[:surplus]
            self._lost += surplus
            self._why_lost = self.problem
        if len(self._events) > MOST_EVENTS:
            del self._events[: len(self._events) - MOST_EVENTS]


class _Flood:
    """Lets so many events a minute through one by one; the others as one for each kind and GPU, with their count."""

    def __init__(self) -> None:
        self._minute: Optional[Instant] = None
        self._admitted = 0
        self._rest: dict[tuple[str, Optional[str], str], Event] = {}

    def admit(self, events: Iterable[Event], now: Instant) -> list[Event]:
        """The events to keep now."""
        kept: list[Event] = []
        since = None if self._minute is None else now.since(self._minute)
        if since is None or since >= 60:
            kept += self.summed_up()
            self._minute, self._admitted = now, 0
        for event in events:
            if self._admitted < EVENTS_A_MINUTE:
                self._admitted += 1
                kept.append(event)
                continue
            key = (event.kind, event.uuid, event.at.boot_id)
            first = self._rest.get(key, replace(event, count=0, fields={**event.fields, "summed_up": True}))
            self._rest[key] = replace(first, count=first.count + event.count)
        return kept

    def summed_up(self) -> tuple[Event, ...]:
        """Those that stand for many, once."""
        rest, self._rest = self._rest, {}
        return tuple(rest.values())


def _on_its_gpu(event: Event, uuids: Mapping[str, str]) -> Event:
    """The kernel names a card by its PCI address; the driver's list says which one that is."""
    pci = event.fields.get("pci")
    uuid = uuids.get(pci) if event.uuid is None and isinstance(pci, str) else None
    return event if uuid is None else replace(event, uuid=uuid)


def _values(columns: Sequence[Column], reading_of: Callable[[str], Optional[Reading]]) -> Values:
    """None for what was not read."""
    readings = (reading_of(column.metric) for column in columns)
    return tuple(None if reading is None else _kept(reading.value) for reading in readings)


def _folded(readings: Sequence[Mapping[str, Reading]], column: Column) -> Optional[float]:
    """One metric over some seconds."""
    metric = column.metric
    values = [each[metric].value for each in readings if metric in each]
    known = [value for value in values if value is not None]
    return _kept(fold_known(known, column.fold)) if known else None


def _kept(value: Optional[float]) -> Optional[float]:
    """To 0.001; None for what is no number that can be kept."""
    return round(value, 3) if value is not None and isfinite(value) else None
