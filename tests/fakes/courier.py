"""A courier that delivers at once, or not at all, and remembers what it was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, Optional


class FakeCourier:
    """Implements protocols.Courier. `record` is told each delivery's id; `refusal` answers instead of delivering."""

    def __init__(self, record: Optional[Callable[[str], None]] = None) -> None:
        self.sent: list[Mapping[str, Any]] = []
        self.refusal: Optional[Mapping[str, object]] = None
        self._record = record
        self._told: list[Mapping[str, object]] = []

    def send(self, requests: tuple[Mapping[str, object], ...]) -> None:
        """See protocols.Courier."""
        for request in requests:
            self.sent.append(request)
            if self.refusal is not None:
                self._told.append({"id": request["id"], **self.refusal})
                continue
            if self._record is not None:
                self._record(str(request["id"]))
            self._told.append({"id": request["id"], "ok": True})

    def outcomes(self) -> tuple[Mapping[str, object], ...]:
        """See protocols.Courier."""
        told, self._told = tuple(self._told), []
        return told

    def fds(self) -> tuple[int, ...]:
        """See protocols.Courier."""
        return ()

    def close(self, wait_s: float) -> None:
        """See protocols.Courier."""

    def titles(self) -> list[str]:
        """First lines of the messages, in order."""
        return [str(request["message"]["title"]) for request in self.sent]
