"""The same containers, made in several ways: simulated, and in real engines behind their API."""

from __future__ import annotations

import itertools
import time
from signal import SIGTERM
from typing import Optional, Protocol

from gpuwatch.model.container import Container
from gpuwatch.simulation.containers import Manner, SimulatedEngine
from gpuwatch.system.containers import DockerApi
from gpuwatch.system.protocols import ContainerEngine
from tests.fakes.clock import FakeClock
from tests.lab.engines import EngineApi
from tests.lab.waiting import wait_for

_numbers = itertools.count(1)
UNTIL_TERM = "trap 'exit 143' TERM; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; while :; do sleep 0.05; done"


class World(Protocol):
    """Makes containers. Times in nanoseconds of UTC."""

    kind: str
    engine: ContainerEngine

    def now_ns(self) -> int:
        """Now; what happens next is later."""

    def create(self, labels: Optional[dict[str, str]] = None) -> str:
        """A container that was not started; its id."""

    def job(self, deaf: bool = False) -> str:
        """A container that runs, with restart policy "always", and ends on SIGTERM, or is deaf to it; its id."""

    def until(self, container_id: str, status: str) -> None:
        """Wait for that."""

    def start(self, container_id: str) -> None:
        """Start it; it runs."""

    def end(self, container_id: str, exit_code: int) -> None:
        """It ends by itself."""

    def kill(self, container_id: str) -> None:
        """SIGKILL through the engine."""

    def pause(self, container_id: str, paused: bool) -> None:
        """Freeze or thaw."""

    def remove(self, container_id: str) -> None:
        """Delete it."""


class SimulatedWorld:
    """SimulatedEngine, as docker or as podman."""

    def __init__(self, kind: str) -> None:
        self.kind, self.clock = kind, FakeClock()
        self.simulated = SimulatedEngine(self.clock, kind)
        self.engine: ContainerEngine = self.simulated

    def now_ns(self) -> int:
        self.clock.advance(2.0)
        return int(self.clock.now().utc_s * 10**9)

    def create(self, labels: Optional[dict[str, str]] = None) -> str:
        self.clock.advance(0.1)
        return self.simulated.create(f"box{next(_numbers)}", labels=labels)

    def job(self, deaf: bool = False) -> str:
        self.clock.advance(0.1)
        manner = Manner(ignores_sigterm=deaf, stops_in_s=0.1)
        found = self.simulated.create(f"job{next(_numbers)}", restart_policy="always", manner=manner)
        self.start(found)
        return found

    def until(self, container_id: str, status: str) -> None:
        for _ in range(100):
            found = self.engine.inspect(container_id)
            if found is not None and found.status == status:
                return
            self.clock.advance(0.1)
        raise AssertionError(f"it is never {status}")

    def start(self, container_id: str) -> None:
        self.clock.advance(0.1)
        self.simulated.start(container_id, 4000 + next(_numbers))

    def end(self, container_id: str, exit_code: int) -> None:
        self.clock.advance(0.1)
        self.simulated.end(container_id, exit_code)

    def kill(self, container_id: str) -> None:
        self.clock.advance(0.1)
        self.simulated.kill(container_id)

    def pause(self, container_id: str, paused: bool) -> None:
        self.simulated.pause(container_id, paused)

    def remove(self, container_id: str) -> None:
        self.simulated.remove(container_id)


class RealWorld:
    """Real podman or docker. A container ends by itself when its file /end holds a number."""

    def __init__(self, kind: str, api: EngineApi) -> None:
        self.kind, self.api = kind, api
        self.engine: ContainerEngine = DockerApi(api.socket)

    def now_ns(self) -> int:
        return time.time_ns()

    def job(self, deaf: bool = False) -> str:
        script = DEAF if deaf else UNTIL_TERM
        found = self.api.create(f"job{next(_numbers)}", script, HostConfig={"RestartPolicy": {"Name": "always"}})
        self.start(found)
        ready = f"/proc/{self._pid(found)}/status"
        wait_for(lambda: _handles_term(ready), what="a shell that has read its first line")
        return found

    def _pid(self, container_id: str) -> int:
        found = self.engine.inspect(container_id)
        assert found is not None and found.pid
        return found.pid

    def create(self, labels: Optional[dict[str, str]] = None) -> str:
        script = "while [ ! -s /end ]; do sleep 0.05; done; read code </end; exit $code"
        return self.api.create(f"box{next(_numbers)}", script, Labels=labels or {})

    def start(self, container_id: str) -> None:
        self.api.post(container_id, "start")
        self.until(container_id, "running")

    def end(self, container_id: str, exit_code: int) -> None:
        with open(f"/proc/{self._pid(container_id)}/root/end", "w", encoding="ascii") as file:
            file.write(f"{exit_code}\n")
        self.until(container_id, "exited")

    def kill(self, container_id: str) -> None:
        self.api.post(container_id, "kill?signal=KILL")
        self.until(container_id, "exited")

    def pause(self, container_id: str, paused: bool) -> None:
        self.api.post(container_id, "pause" if paused else "unpause")

    def remove(self, container_id: str) -> None:
        self.api.remove(container_id)

    def until(self, container_id: str, status: str) -> None:
        def there() -> bool:
            found: Optional[Container] = self.engine.inspect(container_id)
            return found is not None and found.status == status

        wait_for(there, what=f"a container that is {status}")


def _handles_term(path: str) -> bool:
    """True once SIGTERM is caught or ignored by the process of that status file."""
    with open(path, encoding="ascii") as file:
        masks = dict(line.split(":", 1) for line in file)
    return bool((int(masks["SigCgt"], 16) | int(masks["SigIgn"], 16)) >> (SIGTERM - 1) & 1)
