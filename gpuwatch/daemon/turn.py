"""One turn of the loop: requests, the cycle, and what others may see of it."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from gpuwatch.daemon.account import PROBLEM_ID
from gpuwatch.daemon.control import Request
from gpuwatch.daemon.cycle import Cycle, Seen
from gpuwatch.daemon.orders import log_order
from gpuwatch.daemon.scene import Scene
from gpuwatch.daemon.view import Process, status_line, view
from gpuwatch.evidence.manifest import list_bundles
from gpuwatch.model.errors import ConfigError, EvidenceError
from gpuwatch.model.instant import Instant
from gpuwatch.model.settings import Settings
from gpuwatch.system.protocols import Log, Task, Worker

COPY_CYCLES = 5
HOUSEKEEPING_CYCLES = 300  # evidence is counted and pruned this often, and after each bundle
ERROR, WARNING, NOTICE = 3, 4, 5


@dataclass
class Turn:
    """Implements loop.Turn over a cycle."""

    cycle: Cycle
    scene: Scene
    scribe: Worker
    process: Process
    log: Log
    load_settings: Callable[[], Settings]
    run_dir: str
    reader_gid: int = -1  # who may read the copy of the view beside root
    requests: deque[Request] = field(default_factory=deque)
    _obeyed: list[tuple[Request, Mapping[str, Any]]] = field(default_factory=list)  # answered once it is written down
    _snapshots: list[tuple[Request, str, Task[Instant]]] = field(default_factory=list)
    _counted: tuple[int, int] = (0, 0)
    _counting: Optional[Task[tuple[int, int]]] = None
    _newest: str = ""
    end: Callable[[], None] = lambda: None
    uprooted: bool = False
    _said: str = ""
    _copy_problem: str = ""
    _copied_news: object = None

    def run(self) -> str:
        """See loop.Turn."""
        self._answer_requests()
        seen = self.cycle.run()
        self._end_orders(seen)
        self._keep_house()
        self._look_after_place()
        self._leave_copy(seen)
        self._tell_problems(
            seen.committed.problem,
            seen.journal_problem,
            seen.history_problem,
            *(f"channel {name}: {why}" for name, (_, why) in seen.undelivered.items()),
            self._copy_problem,
        )
        return status_line(seen, self.cycle.settings, self.process.simulated)

    def listen(self) -> bool:
        """See loop.Turn."""
        return self.cycle.listen()

    def hurries(self) -> bool:
        """See loop.Turn."""
        return self.cycle.hurries()

    def reload(self) -> None:
        """A bad configuration is refused with its reasons and the old one stays."""
        try:
            settings = self.load_settings()
        except ConfigError as error:
            for problem in error.problems:
                self.log.write(ERROR, str(problem), {"MESSAGE_ID": PROBLEM_ID})
            self.log.write(
                ERROR, f"{len(error.problems)} problems; nothing was changed, the running configuration stays"
            )
            return
        self.cycle.reload(settings)
        self.log.write(NOTICE, "the configuration was read again")

    def _answer_requests(self) -> None:
        while self.requests:
            request = self.requests.popleft()
            if request.what == "snapshot":
                self._begin_snapshot(request)
            elif request.what == "order":
                self._order(request)
            else:
                request.finish(self._settle_gpu(request))
        self._end_snapshots()

    def _order(self, request: Request) -> None:
        """In force from the cycle that follows, and answered after it: what is promised is written down."""
        obeyed = self.cycle.order(request.arguments, request.by)
        log_order(self.log, obeyed)
        if "error" in obeyed.answer:
            request.finish(obeyed.answer)
        else:
            self._obeyed.append((request, obeyed.answer))

    def _end_orders(self, seen: Seen) -> None:
        obeyed, self._obeyed = self._obeyed, []
        for request, answer in obeyed:
            if not seen.committed.durable or seen.committed.degraded:
                problem = f"in force, but not on disk: {seen.committed.problem}"
                answer = {**answer, "warning": "; ".join(filter(None, (answer.get("warning"), problem)))}
            request.finish(answer)

    def _settle_gpu(self, request: Request) -> Mapping[str, Any]:
        what, uuid = str(request.arguments.get("what")), str(request.arguments.get("uuid"))
        problem = self.cycle.settle_inventory(what, uuid)
        if not problem:
            self.log.write(NOTICE, f"gpu {what} {uuid}", {"GPU_UUID": uuid})
        return {"error": problem} if problem else {"done": True}

    def _begin_snapshot(self, request: Request) -> None:
        bundle_id = self.scene.bundles.new_id(self.cycle.ports.clock.now(), "by-hand", "host")
        task = self.scribe.submit(self.scene.by_hand(bundle_id, str(request.arguments.get("reason", ""))))
        self.scribe.wait(task, 2.0)
        self._snapshots.append((request, bundle_id, task))

    def _end_snapshots(self) -> None:
        waiting = []
        for request, bundle_id, task in self._snapshots:
            if not task.done():
                waiting.append((request, bundle_id, task))
                continue
            try:
                task.result()
            except EvidenceError as error:
                request.finish({"error": str(error)})
            else:
                request.finish({"bundle": bundle_id, "path": os.path.join(self.scene.bundles.root, bundle_id)})
        self._snapshots = waiting

    def _keep_house(self) -> None:
        """Count and prune the evidence, on the scribe's thread: a slow disk is not the cycle's trouble."""
        newest = max((incident.bundle for incident in self.cycle.seen.policy.incidents.values()), default="")
        if self._counting is not None and self._counting.done():
            counting, self._counting = self._counting, None
            try:
                self._counted = counting.result()
            except (EvidenceError, OSError) as error:
                self.log.write(WARNING, f"evidence: {error}")
        due = self.cycle.seen.cycles % HOUSEKEEPING_CYCLES == 1 or newest != self._newest
        if due and self._counting is None:
            self._newest = newest
            self._counting = self.scribe.submit(self._prune_and_count)

    def _prune_and_count(self) -> tuple[int, int]:
        bundles = self.scene.bundles
        kept = {incident.bundle for incident in self.cycle.seen.policy.incidents.values()}
        kept |= {intent.bundle for intent in self.cycle.seen.intents}
        bundles.prune(self.cycle.settings.evidence_count, kept)
        listed = list_bundles(bundles.root)
        return len(listed), sum(bundle.manifest.size_bytes for bundle in listed if bundle.manifest is not None)

    def _look_after_place(self) -> None:
        """Somebody cleared /run: the lock, the socket and the fallback of the state are gone with it."""
        if not self.uprooted and not os.path.isdir(self.run_dir):
            self.uprooted = True
            self.end()

    def latest(self) -> Mapping[str, Any]:
        """The view of the last cycle, made when somebody asks. Called from the control socket's threads: what it
        is made of never changes."""
        return view(self.cycle.seen, self.cycle.settings, self.process, *self._counted)

    def _leave_copy(self, seen: Seen) -> None:
        """What `gpuwatch status` shows when the daemon is down: every few cycles, and at once when something
        happened. In /run: no disk is touched."""
        news = (seen.orders, seen.policy.incidents.keys(), [each.state for each in seen.intents], seen.report.state)
        if news == self._copied_news and seen.cycles % COPY_CYCLES:
            return
        self._copied_news = news
        path = os.path.join(self.run_dir, "status.json")
        try:
            descriptor = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, 0o640)  # whatever the umask: those who may use the socket may read this
                os.fchown(descriptor, -1, self.reader_gid)
                file.write(json.dumps(self.latest()))
            os.replace(path + ".new", path)
            self._copy_problem = ""
        except OSError as error:
            self._copy_problem = f"{path}: {error.strerror}"

    def _tell_problems(self, *found: str) -> None:
        problems = "; ".join(filter(None, found))
        if problems or self._said:
            self._say(problems)

    def _say(self, problem: str) -> None:
        """A lasting problem is logged when it begins, changes or ends, not each second."""
        if problem != self._said:
            self._said = problem
            self.log.write(WARNING if problem else NOTICE, problem or "all is well again", {"MESSAGE_ID": PROBLEM_ID})
