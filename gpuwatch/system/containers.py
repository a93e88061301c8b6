"""Docker and podman through the Docker-compatible API on a unix socket.

Beside GET nothing is ever sent but stop, kill and unpause of one container: what changes a container's resources
(`docker update`) can take the GPUs from others that run (S13).
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar
from urllib.parse import quote

from gpuwatch.model.container import Container, EngineError, EngineState
from gpuwatch.model.errors import ActionError
from gpuwatch.system import container_facts
from gpuwatch.system.protocols import EngineEvent, EngineFacts, ListedContainer

if TYPE_CHECKING:
    from gpuwatch.system.unix_http import Answer

SOCKETS = ("/run/docker.sock", "/run/podman/podman.sock")
TIMEOUT_S = 5.0
STOPPED_S = 30.0  # beyond the grace: the engine kills, and cleans up behind it, before it answers a stop
# JSON is parsed in one piece, in which no other thread runs: 4 MiB take some 40 ms. A line of the list takes 1-2 KiB.
MOST_LIST_BYTES = 4 * 1024**2
MOST_FACTS_BYTES = 1024**2

T = TypeVar("T")


class DockerApi:
    """Implements protocols.ContainerEngine. Each call is a connection of its own and ends within `timeout_s`; what is
    done to a container within `stopped_s`, beyond the grace of a stop.

    Paths carry no API version: an engine then answers as its newest one, and new ones refuse old versions.
    """

    def __init__(self, socket: str, timeout_s: float = TIMEOUT_S, stopped_s: float = STOPPED_S) -> None:
        self.socket = socket
        self._timeout_s, self._stopped_s = timeout_s, stopped_s
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

    def stop(self, container_id: str, grace_s: float) -> None:
        """See protocols.ContainerEngine."""
        grace = max(1, math.ceil(grace_s))  # whole seconds; 0 would be SIGKILL at once
        self._do(container_id, "stop", f"?t={grace}", grace + self._stopped_s)

    def kill(self, container_id: str, signal: int) -> None:
        """See protocols.ContainerEngine."""
        self._do(container_id, "kill", f"?signal={signal}", self._stopped_s)

    def unpause(self, container_id: str) -> None:
        """See protocols.ContainerEngine."""
        self._do(container_id, "unpause", "", self._stopped_s)

    def _do(self, container_id: str, verb: str, query: str, timeout_s: float) -> None:
        from gpuwatch.system.unix_http import UnsentError, request

        asked = f"{verb} of container {container_id[:12]}"
        try:
            answer = request(
                self.socket, "POST", f"/containers/{container_id}/{verb}{query}", timeout_s, MOST_FACTS_BYTES
            )
        except EngineError as error:
            # An engine that is merely slow is asked again, whether or not it has heard.
            unknown = error.state is EngineState.SLOW or not isinstance(error, UnsentError)
            raise ActionError(f"{asked}: {error}", unknown=unknown) from error
        if answer.status not in (200, 204, 304):  # 304: it had stopped already
            words = container_facts.message(answer.body) or f"HTTP status {answer.status}"
            raise ActionError(f"{asked}: {self.socket} says: {words}", unknown=answer.status >= 500)

    def _json(self, target: str, most_bytes: int) -> Any:
        return self._make(container_facts.load, self._good(self._get(target, most_bytes)).body)

    def _get(self, target: str, most_bytes: int) -> Answer:
        from gpuwatch.system.unix_http import request  # only where there is an engine: it costs 1.5 MiB

        return request(self.socket, "GET", target, self._timeout_s, most_bytes)

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
