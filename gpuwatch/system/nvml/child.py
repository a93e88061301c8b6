"""The process that talks to the NVIDIA driver: the only importer of pynvml (S7, S14).

    python -m gpuwatch.system.nvml.child LOCK DRIVER PATIENCE_S PROMPT_S

A call into a sick driver may never return, and then nothing ends the process that made it. So all calls are
made here, and while one such process lives no other is started: before the first call it takes the lock LOCK,
which the kernel gives back only when the process is really gone. Without DRIVER (/proc/driver/nvidia) it ends
at once, since nvmlInit would load the module.

Standard output, one JSON object a line:
    {"hello": {"pid", "binding"}}                 the lock is ours, the driver is next
    {"id", "gpu": {...}}                          a GPU's sample (wire.py), as soon as it is complete
    {"id", "minute": {"uuid", "readings"}}        what is read once a minute, when it is complete
    {"id", "listed": [[pci, uuid, name], ...]}    what the kernel module lists, when NVML can't name a GPU
    {"id", "done": "ok", "driver", "library", "unanswered": [index, ...]}
                                                  all GPUs have answered, or the wait for them is over
    {"id", "changed": [number, problem, detail, limit, least, most, default]}
                                                  what became of a change (model/gpu_change.py), in W or null
    {"id", "probe": "ok"}                         the driver answers
    {"id": 0, "done": STATE, "reason"}            nothing can be read (a DriverState, or "locked"); it ends
Standard input: {"op": "sample", "id", "processes", "minute", "changes"}, where the next two say what is due beside
the readings of each second and the last is what to set (wire.py) after the readings, so that they don't wait for it;
or {"op": "probe", "id"}; the end of it, or SIGTERM, means "end when no call is under way".

Each GPU has a thread, so that one that is slow or hangs does not hold up the others: a GPU that has answered before
is waited for PROMPT_S, a new one PATIENCE_S, and an answer that comes later is sent all the same, under the
question's number. A change is for the thread of its GPU. While that one owes an answer the change is given up without
a word, for the asker to repeat: a write that a hanging driver lets through minutes later is worse than none (S7).
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Optional

from gpuwatch.model.errors import SourceError
from gpuwatch.model.gpu_change import GpuChange
from gpuwatch.system.lock import HostLock
from gpuwatch.system.nvml.calls import FOREIGN, Calls, Lost, Trouble, Unsupported
from gpuwatch.system.nvml.card import Card
from gpuwatch.system.nvml.changes import Outcome, carry_out, not_there
from gpuwatch.system.nvml.information import read_information
from gpuwatch.system.nvml.wire import change_from_wire, readings_to_wire, to_wire

# What nvmlInit may answer, as states of the client's (model/gpu.py).
_LIBRARY_NOT_FOUND, _MISMATCH = 12, 18

Send = Callable[[dict[str, Any]], None]
Order = tuple[int, GpuChange, float]  # the client's number, the change, until when it may be begun


class Unavailable(Exception):
    """Nothing can be read; the client is told a state and a reason."""

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(reason)
        self.state, self.reason = state, reason


TURN_S = 0.02  # how long a GPU is waited for before the next one is asked


@dataclass(frozen=True)
class Question:
    """What a GPU is asked. `listing` counts changes of the driver's list, after which handles are new."""

    number: int
    with_processes: bool
    with_minute: bool
    listing: int
    orders: Sequence[Order] = ()


def changed(number: int, order_number: int, outcome: Outcome) -> dict[str, Any]:
    """The message."""
    return {"id": number, "changed": [order_number, *outcome]}


class GpuThread(threading.Thread):
    """Asks one GPU, one question at a time. Not a daemon thread: a call under way is never cut off by our end."""

    def __init__(
        self, calls: Calls, index: int, send: Send, answered: queue.SimpleQueue[tuple[int, int]], driver_path: str
    ) -> None:
        super().__init__(name=f"gpu-{index}")
        self.index, self.busy, self.known, self.uuid = index, False, False, ""
        self._calls, self._send, self._answered, self._driver_path = calls, send, answered, driver_path
        self._questions: queue.SimpleQueue[Optional[Question]] = queue.SimpleQueue()
        self._card: Optional[Card] = None
        self._listing = -1
        self._minute_owed = False

    def owe_minute(self) -> None:
        """It was due while the GPU was busy: with the next question then."""
        self._minute_owed = True

    def ask(self, question: Question) -> None:
        """Only while not busy."""
        self.busy = True
        self._questions.put(question)

    def end(self) -> None:
        """After the question under way."""
        self._questions.put(None)

    def run(self) -> None:
        while True:
            question = self._questions.get()
            if question is None:
                return
            self._answer(question)

    def _answer(self, question: Question) -> None:
        fresh = self._card is None or question.listing != self._listing
        if fresh:
            self._card, self._listing, self.known = Card(self._calls, self.index), question.listing, False
        card = self._card
        assert card is not None
        with_minute = question.with_minute or self._minute_owed or fresh
        self._minute_owed = False
        sample = card.sample(question.with_processes)
        if card.unidentified and with_minute:
            listed = read_information(self._driver_path)
            self._send({"id": question.number, "listed": [[each.pci, each.uuid, each.name] for each in listed]})
        if fresh and with_minute:
            self._send_minute(card, question.number)  # first of all, so that the first report is whole
        self._send({"id": question.number, "gpu": to_wire(sample)})
        self.known, self.uuid = True, sample.uuid
        late = with_minute and not fresh
        goes_on = late or bool(question.orders)
        self.busy = goes_on
        self._answered.put((question.number, self.index))
        for order in question.orders:
            self._change(question.number, order)
        if late:
            self._send_minute(card, question.number)
        if goes_on:  # else the next question may be there already
            self.busy = False

    def _change(self, number: int, order: Order) -> None:
        order_number, change, until = order
        outcome = carry_out(self._calls, change, until)
        if outcome is not None:
            self._send(changed(number, order_number, outcome))

    def _send_minute(self, card: Card, number: int) -> None:
        readings = card.minute()
        if readings:
            uuid = card.identity.uuid
            self._send({"id": number, "minute": {"uuid": uuid, "readings": readings_to_wire(readings)}})


class Driver:
    """One start of the driver: nvmlInit once (N14), then a thread a GPU."""

    def __init__(self, api: Any, send: Send, driver_path: str, patience_s: float, prompt_s: float) -> None:
        """Raises Unavailable. May block."""
        self._send, self._driver_path = send, driver_path
        self._patience_s, self._prompt_s = patience_s, prompt_s
        self._calls = Calls(api)
        self._threads: list[GpuThread] = []
        self._answered: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._listing = 0
        _initialise(api)
        self._about = {"driver": self._version(), "library": _library_path()}

    def sample(self, number: int, with_processes: bool, with_minute: bool, orders: Sequence[Order]) -> None:
        """Answer one question. Raises Unavailable when the driver can't even count its GPUs."""
        self._follow_count()
        self._refuse_unknown(number, orders)
        deadlines: dict[tuple[int, int], float] = {}
        unanswered = []
        for thread in self._threads:
            if thread.busy:
                unanswered.append(thread.index)
                if with_minute:
                    thread.owe_minute()
            else:
                patience_s = self._prompt_s if thread.known else self._patience_s
                asked = time.monotonic()
                deadlines[number, thread.index] = asked + patience_s
                ours = [order for order in orders if order[1].uuid == thread.uuid]
                thread.ask(Question(number, with_processes, with_minute, self._listing, ours))
                # One after another, while each answers promptly: threads that run at once fight for the
                # interpreter's lock, at some hundred switches a second. A slow one delays the next by no more.
                self._collect(deadlines, asked + TURN_S, (number, thread.index))
        if deadlines:
            self._collect(deadlines, max(deadlines.values()), None)
        unanswered += [index for _, index in deadlines]
        self._send({"id": number, "done": "ok", **self._about, "unanswered": sorted(unanswered)})

    def _refuse_unknown(self, number: int, orders: Sequence[Order]) -> None:
        """Answer for cards that are not there; while one has not told its UUID, nobody can say."""
        there = {thread.uuid for thread in self._threads}
        if "" not in there:
            for order_number, change, _ in orders:
                if change.uuid not in there:
                    self._send(changed(number, order_number, not_there(change)))

    def _collect(
        self, deadlines: dict[tuple[int, int], float], until: float, wanted: Optional[tuple[int, int]]
    ) -> None:
        """Cross off what is answered, until `wanted` (None: everything) is, or the time is over."""
        while deadlines and (wanted is None or wanted in deadlines):
            try:
                deadlines.pop(self._answered.get(timeout=max(until - time.monotonic(), 0.0)), None)
            except queue.Empty:
                return

    def probe(self, number: int) -> None:
        """The lightest question there is. Raises Unavailable."""
        self._count()
        self._send({"id": number, "probe": "ok"})

    def end(self) -> None:
        """Let idle threads go; one that is in a call goes when that returns."""
        for thread in self._threads:
            thread.end()

    def _follow_count(self) -> None:
        count = self._count()
        if count == len(self._threads):
            return
        self._listing += 1
        for thread in self._threads[count:]:
            thread.end()
        del self._threads[count:]
        for index in range(len(self._threads), count):
            thread = GpuThread(self._calls, index, self._send, self._answered, self._driver_path)
            thread.start()
            self._threads.append(thread)

    def _count(self) -> int:
        try:
            return int(self._calls("nvmlDeviceGetCount"))
        except (Unsupported, Trouble, Lost) as error:
            raise Unavailable("failed", str(error)) from error

    def _version(self) -> str:
        try:
            version = self._calls("nvmlSystemGetDriverVersion")
        except (Unsupported, Trouble, Lost):
            return ""
        return version.decode("utf-8", "replace") if isinstance(version, bytes) else str(version)


def _import_binding() -> tuple[Any, str]:
    """pynvml, and what it is: some hosts carry an old third-party module of that name (N1)."""
    try:
        import pynvml
    except (ImportError, SyntaxError, *FOREIGN) as error:
        raise Unavailable("failed", f"the Python module pynvml (nvidia-ml-py) can't be used: {error}") from error
    path = os.path.abspath(pynvml.__file__ or "")
    version = str(getattr(pynvml, "__version__", "")) or _version_beside(path)
    if not hasattr(pynvml, "NVMLError") or not hasattr(pynvml, "nvmlInit"):
        raise Unavailable("failed", f"{path} is not the module of the package nvidia-ml-py")
    return pynvml, f"pynvml {version or 'of unknown version'} from {path}"


def _version_beside(path: str) -> str:
    # The package's metadata lies beside its one module; importlib.metadata would cost megabytes.
    try:
        names = os.listdir(os.path.dirname(path))
    except OSError:
        return ""
    start, end = "nvidia_ml_py-", ".dist-info"
    return next((name[len(start) : -len(end)] for name in names if name.startswith(start) and name.endswith(end)), "")


def _initialise(api: Any) -> None:
    try:
        api.nvmlInit()
    except api.NVMLError as error:
        code = getattr(error, "value", 999)
        if code == _LIBRARY_NOT_FOUND:
            raise Unavailable("no_library", "the driver's library libnvidia-ml.so.1 is not to be found") from error
        if code == _MISMATCH:
            raise Unavailable(
                "mismatch", "the driver's library and its kernel module are of different versions (NVML error 18)"
            ) from error
        raise Unavailable("failed", f"nvmlInit: {error} (NVML error {code})") from error


def _library_path() -> str:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return next((line.split(maxsplit=5)[5].strip() for line in maps if "libnvidia-ml.so" in line), "")
    except OSError:
        return ""


def _take_output() -> Send:
    """Keep standard output for the protocol alone; what a library prints goes to standard error."""
    fd = os.dup(1)
    os.dup2(2, 1)
    lock = threading.Lock()

    def send(message: dict[str, Any]) -> None:
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with lock:
            try:
                while line:
                    line = line[os.write(fd, line) :]
            except BrokenPipeError:
                pass  # nobody listens any more; the end of standard input follows

    return send


def _serve(send: Send, lock_path: str, driver_path: str, patience_s: float, prompt_s: float) -> None:
    lock = HostLock(lock_path)
    try:
        if not lock.acquire("driver", time.time()):
            raise Unavailable("locked", "an earlier process of gpuwatch still talks to the driver")
    except SourceError as error:
        raise Unavailable("failed", str(error)) from error
    if not os.path.exists(driver_path):
        raise Unavailable("absent", f"no NVIDIA driver is loaded ({driver_path} does not exist)")
    api, binding = _import_binding()
    send({"hello": {"pid": os.getpid(), "binding": binding}})
    driver = Driver(api, send, driver_path, patience_s, prompt_s)
    try:
        for line in sys.stdin.buffer:
            question = json.loads(line)
            if question.get("op") == "sample":
                orders = [change_from_wire(order) for order in question.get("changes", ())]
                due = bool(question.get("processes")), bool(question.get("minute"))
                driver.sample(int(question["id"]), *due, orders)
            elif question.get("op") == "probe":
                driver.probe(int(question["id"]))
    finally:
        driver.end()


def _end_at_signal(number: int, frame: Optional[FrameType]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(0)


def _die_of_bug(what: threading.ExceptHookArgs) -> None:
    # A thread that ends silently would look like a GPU that hangs.
    traceback.print_exception(what.exc_type, what.exc_value, what.exc_traceback)
    os._exit(70)


def main() -> int:
    """Exit code 0 after an orderly end, whatever was told; 70 for a bug in here."""
    lock_path, driver_path, patience_s, prompt_s = sys.argv[1:5]
    send = _take_output()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C on a terminal is for the parent
    signal.signal(signal.SIGTERM, _end_at_signal)
    threading.excepthook = _die_of_bug
    try:
        _serve(send, lock_path, driver_path, float(patience_s), float(prompt_s))
    except Unavailable as unavailable:
        send({"id": 0, "done": unavailable.state, "reason": unavailable.reason})
    return 0


if __name__ == "__main__":
    sys.exit(main())
