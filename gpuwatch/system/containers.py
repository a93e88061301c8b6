"""Docker and podman through the Docker-compatible API on a unix socket. Read-only: nothing is ever sent but GET."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar
from urllib.parse import quote

from gpuwatch.model.container import Container, EngineError, EngineState
from gpuwatch.system import container_facts
from gpuwatch.system.protocols import EngineEvent, EngineFacts, ListedContainer

if TYPE_CHECKING:
    from gpuwatch.system.unix_http import Answer

SOCKETS = ("/run/docker.sock", "/run/podman/podman.sock")
TIMEOUT_S = 5.0
# JSON is parsed in one piece, in which no other thread runs: 4 MiB take some 40 ms. A line of the list takes 1-2 KiB.
MOST_LIST_BYTES = 4 * 1024**2
MOST_FACTS_BYTES = 1024**2

T = TypeVar("T")


class DockerApi:
    """Implements protocols.ContainerEngine. Each call is a connection of its own and ends within `timeout_s`.

    Paths carry no API version: an engine then answers as its newest one, and new ones refuse old versions.
    """

    def __init__(self, socket: str, timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket
        self._timeout_s = timeout_s
        self._kind = ""

    def identity(self) -> str:
        """See protocols.ContainerEngine. podman-docker makes docker's socket a link to podman's: one engine."""
        try:
            found = os.stat(self.socket)
        except OSError:
            return ""
        return f"{found.st_dev}:{found.st_ino}"

    def facts(self) -> EngineFacts:
        """See protocols.ContainerEngine."""
        data = self._json("/version", MOST_FACTS_BYTES)
        if not isinstance(data, dict) or not isinstance(data.get("Version"), str):
            raise EngineError(f"{self.socket}: the engine does not tell its version", EngineState.FAILED)
        parts = data.get("Components")
        names = [each.get("Name") for each in parts if isinstance(each, dict)] if isinstance(parts, list) else []
        self._kind = "podman" if "Podman Engine" in names else "docker"
        return EngineFacts(self._kind, data["Version"][:64])

    def containers(self) -> tuple[ListedContainer, ...]:
        """See protocols.ContainerEngine."""
        return self._make(container_facts.listed, self._json("/containers/json?all=1", MOST_LIST_BYTES))

    def inspect(self, container_id: str) -> Optional[Container]:
        """See protocols.ContainerEngine."""
        kind = self._kind or self.facts().kind
        answer = self._get(f"/containers/{container_id}/json", MOST_FACTS_BYTES)
        if answer.status == 404:
            return None
        data = self._make(container_facts.load, self._good(answer).body)
        return self._make(lambda facts: container_facts.container(facts, kind), data)

    def events(self, since_ns: int, until_ns: int) -> tuple[EngineEvent, ...]:
        """See protocols.ContainerEngine.

        podman (4.3) loses events of the past when it is given an end that has passed; it has `stream=false` instead,
        which docker does not know. It counts `since` in whole seconds.
        """
        kind = self._kind or self.facts().kind
        end = "stream=false" if kind == "podman" else f"until={_seconds(until_ns)}"
        filters = quote('{"type":["container"]}')
        answer = self._get(f"/events?since={_seconds(since_ns)}&{end}&filters={filters}", MOST_LIST_BYTES)
        return self._make(container_facts.events, self._good(answer).body)

    def _json(self, target: str, most_bytes: int) -> Any:
        return self._make(container_facts.load, self._good(self._get(target, most_bytes)).body)

    def _get(self, target: str, most_bytes: int) -> Answer:
        from gpuwatch.system.unix_http import get  # only where there is an engine: it costs 1.5 MiB

        return get(self.socket, target, self._timeout_s, most_bytes)

    def _good(self, answer: Answer) -> Answer:
        if answer.status != 200:
            raise EngineError(f"{self.socket} answers with HTTP status {answer.status}", EngineState.FAILED)
        return answer

    def _make(self, make: Callable[[Any], T], data: Any) -> T:
        try:
            return make(data)
        except container_facts.NonsenseError as error:
            raise EngineError(f"{self.socket} answers nonsense: {error}", EngineState.FAILED) from error


def _seconds(utc_ns: int) -> str:
    return f"{utc_ns // 10**9}.{utc_ns % 10**9:09d}"
