"""A service manager that remembers what it was told."""

from __future__ import annotations


class FakeManager:
    """Implements protocols.Manager."""

    def __init__(self) -> None:
        self.said: list[dict[str, str]] = []

    def notify(self, **fields: str) -> None:
        """See protocols.Manager."""
        self.said.append(fields)
