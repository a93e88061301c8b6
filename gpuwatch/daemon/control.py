"""What the control socket answers, from the last cycle's frozen view; what it hands to the next cycle."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Callable, Optional

from gpuwatch.daemon.orders import ARGUMENTS, who

WAIT_S = 4.5  # a snapshot is usually durable within half a second


class Request:
    """Something for the cycle to do, answered through `finish`."""

    def __init__(self, what: str, arguments: Mapping[str, Any], by: str = "root") -> None:
        self.what = what
        self.arguments = arguments
        self.by = by  # who asks
        self._done = threading.Event()
        self._answer: Mapping[str, Any] = {}

    def finish(self, answer: Mapping[str, Any]) -> None:
        """Called by the cycle's thread."""
        self._answer = answer
        self._done.set()

    def wait(self) -> Optional[Mapping[str, Any]]:
        """The answer, None when the cycle has not given it in time."""
        return self._answer if self._done.wait(WAIT_S) else None


# Verbs that change something, with the arguments that they take: for root alone.
WRITING = {"snapshot": ("reason",), "gpu": ("what", "uuid"), "order": ARGUMENTS}
MOST_TEXT = 200


class Control:
    """Handler of the control socket. Reading verbs are open to the socket's group, writing ones to root."""

    def __init__(self, view: Callable[[], Mapping[str, Any]], wake: Callable[[], None], root_uid: int = 0) -> None:
        self._view, self._wake, self._root_uid = view, wake, root_uid
        self.requests: deque[Request] = deque()

    def handle(self, request: Mapping[str, Any], uid: int) -> Mapping[str, Any]:
        """One request. Called from the socket's threads."""
        verb = request.get("verb")
        if verb == "status":
            return {"view": self._view()}
        if verb not in WRITING:
            return {"error": f"no verb {str(verb)[:40]!r} (known: status, {', '.join(WRITING)})"}
        if uid not in (0, self._root_uid):
            return {"error": f"only root may do that ({verb})"}
        given = {name: request[name] for name in WRITING[verb] if isinstance(request.get(name), (str, int, float))}
        waiting = Request(
            verb,
            {name: each[:MOST_TEXT] if isinstance(each, str) else each for name, each in given.items()},
            who(uid, request.get("sudo")),
        )
        self.requests.append(waiting)
        self._wake()
        answer = waiting.wait()
        return answer if answer is not None else {"error": "the daemon is busy; it may still be done"}
