"""S1, S8: what happens on the disk happens before what happens to the workload. Recorded, and judged as a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.simulation.host import SimulatedHost
from gpuwatch.store.database import Write
from gpuwatch.store.writer import Committed
from tests.fakes.clock import FakeClock
from tests.fakes.recorded_files import RecordedFiles, Step, order_problem
from tests.scenarios.bench import TRAIN, Bench


class RecordedSystemd:
    """Systemd whose stop requests are noted among the other steps."""

    def __init__(self, real: Any, steps: list[Step]) -> None:
        self._real, self._steps = real, steps

    def stop_unit(self, name: str) -> None:
        self._steps.append(("stop", name))
        self._real.stop_unit(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class RecordedWriter:
    """A writer whose commits are noted with the states of the actions in them."""

    def __init__(self, real: Any, steps: list[Step]) -> None:
        self._real, self._steps = real, steps

    def commit(self, writes: Sequence[Write]) -> Committed:
        done: Committed = self._real.commit(writes)
        states = [
            write.document["state"] for write in writes if write.table == "intents" and write.document is not None
        ]
        self._steps.append(("commit", *states))
        if writes[-1].key == "cursor":
            assert [write.key for write in writes].count("cursor") == 1
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def record(folder: Path) -> tuple[list[Step], str, str]:
    """The steps of a hot card's story, the evidence directory, and the bundle's name."""
    files = RecordedFiles()
    clock = FakeClock()
    host = SimulatedHost(clock)
    systemd = RecordedSystemd(host.systemd, files.steps)
    bench = Bench(folder, clock=clock, host=host, files=files, systemd=systemd)
    recorder: Any = RecordedWriter(bench.assembly.writer, files.steps)
    bench.assembly.cycle.ports.writer = recorder
    bench.run(5)
    del files.steps[:]
    bench.heat(94)
    bench.run(15)
    return files.steps, str(folder / "state" / "evidence"), bench.bundles()[0]


def problem(steps: list[Step], root: str, bundle: str) -> str:
    """Why this order would break a promise; "" if it keeps them."""
    stops = [number for number, step in enumerate(steps) if step[0] == "stop"]
    if len(stops) != 1 or steps[stops[0]][1] != TRAIN:
        return f"{len(stops)} stops"
    before, after = steps[: stops[0]], steps[stops[0] + 1 :]
    if any(bundle in path for step in after if step[0] not in ("commit", "stop") for path in step[1:]):
        return "the bundle is touched after the stop"
    disk = [step for step in before if step[0] not in ("commit", "stop")]
    why = order_problem(disk, root, bundle)
    if why:
        return why
    planned = [number for number, step in enumerate(before) if step[0] == "commit" and "planned" in step]
    written = [number for number, step in enumerate(before) if step[0] == "write"]
    sent = [number for number, step in enumerate(before) if step[0] == "commit" and "sent" in step]
    durable = [number for number, step in enumerate(before) if step == ("sync_directory", root)]
    if not planned or planned[0] > written[0]:
        return "evidence is written for an action that was not written down"
    if not sent:
        return "the stop is not written down before it is sent"
    return "" if sent[0] > durable[-1] else "the stop is written down before its evidence is durable"


def test_evidence_then_intent_then_stop(tmp_path: Path) -> None:
    steps, root, bundle = record(tmp_path)
    assert problem(steps, root, bundle) == ""


@pytest.mark.parametrize("kind", ["write", "rename", "sync_directory", "commit"])
def test_any_other_order_would_be_seen(tmp_path: Path, kind: str) -> None:
    """Each step that matters, moved behind the stop, makes the judge object."""
    steps, root, bundle = record(tmp_path)
    stop = next(number for number, step in enumerate(steps) if step[0] == "stop")
    matter = [number for number, step in enumerate(steps[:stop]) if step[0] == kind]
    if kind == "commit":
        matter = [number for number in matter if {"planned", "sent"} & set(steps[number])]
    assert matter
    for number in matter:
        moved = [*steps[:number], *steps[number + 1 : stop + 1], steps[number], *steps[stop + 1 :]]
        assert problem(moved, root, bundle) != ""
