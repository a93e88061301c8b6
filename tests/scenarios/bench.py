"""A whole gpuwatch over a simulated host and a fake clock: everything real behind the edges but time."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, Callable, Optional

from gpuwatch.daemon.app import Assembly, Options, World, assemble, load_settings
from gpuwatch.model.incident import Incident
from gpuwatch.model.intent import Intent
from gpuwatch.model.notification import SpoolEntry
from gpuwatch.simulation.containers import SimulatedEngine
from gpuwatch.simulation.host import SERVING, TRAINING, SimulatedHost
from gpuwatch.simulation.host_readings import SimulatedHostFiles, SimulatedUnitFiles
from gpuwatch.store.database import read_documents
from gpuwatch.store.memory import Snapshot, from_documents
from gpuwatch.system.files import RealFiles
from gpuwatch.system.worker import InlineWorker
from tests.fakes.clock import FakeClock
from tests.fakes.courier import FakeCourier

CONFIG = """
mode: enforce
grace: {start: 0s, boot: 0s}
workloads:
  - name: training
    units: ["train@*.service"]
alerts:
  channels:
    - name: ops
      type: wecom
      key: {file: %(key)s}
      mention: ["@all"]
"""
# The shipped rule with shorter times, for stories that are told many times over.
QUICK = (
    CONFIG
    + """
rules:
  - name: gpu-critical
    metric: gpu.shutdown_margin
    below: 2
    for: 3s
    clear: {above: 8, for: 5s}
    severity: critical
    ladder:
      - do: [stop]
  - {name: gpu-hot, enabled: false}
"""
)
TRAIN, SERVE = TRAINING.unit.name, SERVING.unit.name


class FakeLog:
    """Implements protocols.Log; keeps what was said."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []
        self.fields: list[dict[str, str]] = []

    def write(self, priority: int, message: str, fields: Any = None) -> None:
        """See protocols.Log."""
        self.lines.append((priority, message))
        self.fields.append(dict(fields or {}))


OPEN: list[Bench] = []  # conftest.py closes them after each test


class Bench:
    """The host stands still between calls; `run` lets it live a second a cycle."""

    def __init__(self, folder: Path, config: str = CONFIG, clock: Optional[FakeClock] = None, **edges: Any) -> None:
        self.folder = folder
        self.clock = clock or FakeClock()
        self.host: SimulatedHost = edges.pop("host", None) or SimulatedHost(self.clock)
        self.courier = edges.pop("courier", None) or FakeCourier()
        self.log = FakeLog()
        self.host_files = SimulatedHostFiles()
        self.engine = SimulatedEngine(self.clock)
        self.edges = edges
        self.period_s = 1.0
        key = folder / "key"
        key.write_text("00000000-1111-2222-3333-444444444444")
        key.chmod(0o600)
        self.config = folder / "gpuwatch.yaml"
        self.write_config(config)
        for name in ("state", "run"):
            (folder / name).mkdir(exist_ok=True)
        self.options = Options(str(self.config), str(folder / "state"), str(folder / "run"))
        self.assembly: Assembly
        OPEN.append(self)
        self.start()

    def write_config(self, text: str) -> None:
        """Replace the configuration; read at the next start or reload."""
        text = textwrap.dedent(text)
        self.config.write_text(text % {"key": self.folder / "key"} if "%(key)s" in text else text)
        self.config.chmod(0o644)

    def start(self) -> None:
        """A new process over what is on disk."""
        given: dict[str, Any] = {
            "clock": self.clock,
            "gpus": self.host.gpus,
            "processes": self.host.processes,
            "systemd": self.host.systemd,
            "courier": self.courier,
            "log": self.log,
            "files": RealFiles(),
            "open_journal": self.host.open_journal,
            "doorbell": self.host.doorbell,
            "hands": InlineWorker(),
            "scribe": InlineWorker(),
            "clerk": InlineWorker(),
            "engine_talk": InlineWorker(),
            "archivist": InlineWorker(),
            "engines": [self.engine],
            "namespaced_pid": lambda pid: None,
            "working_directory": lambda pid: {41872: "/srv/train"}.get(pid),
            "host_files": self.host_files,
            "unit_files": SimulatedUnitFiles(),
            "host": self.host.name,
        }
        settings = load_settings(str(self.config)).settings
        self.assembly = assemble(World(**{**given, **self.edges}), self.options, settings, self.period_s)

    def restart(self) -> None:
        """What a kill -9 and a new start come to: nothing but the disk survives."""
        self.close()
        self.start()

    def close(self) -> None:
        """Let go of the files; nothing is written."""
        self.assembly.cycle.ports.host.close()
        self.assembly.cycle.ports.history.close()
        self.assembly.writer.close()

    def reload(self) -> None:
        """The configuration is read again."""
        self.assembly.cycle.reload(load_settings(str(self.config)).settings)

    def run(self, seconds: float, step_s: float = 1.0, until: Optional[Callable[[], bool]] = None) -> None:
        """Cycles for that long, or until something holds."""
        end = self.clock.boottime_s + seconds
        while self.clock.boottime_s < end and not (until is not None and until()):
            self.assembly.cycle.run()
            self.clock.advance(step_s)

    def heat(self, celsius: float, card: int = 3) -> None:
        """One card's temperature from now on."""
        self.host.cards.heat(card, celsius)

    def stored(self) -> Snapshot:
        """What is on disk."""
        return from_documents(read_documents(str(self.folder / "state" / "state.db")))

    @property
    def incidents(self) -> list[Incident]:
        """On disk, by number."""
        return sorted(self.stored().incidents.values(), key=lambda incident: incident.number)

    @property
    def intents(self) -> list[Intent]:
        """On disk, by id."""
        return sorted(self.stored().intents.values(), key=lambda intent: intent.id)

    @property
    def stops(self) -> list[Intent]:
        """Those that stop something."""
        return [intent for intent in self.intents if intent.action == "stop"]

    @property
    def spool(self) -> dict[str, SpoolEntry]:
        """On disk, by transition."""
        return {key.split("/")[1]: entry for key, entry in self.stored().spool.items()}

    def bundles(self) -> list[str]:
        """Names in the evidence directory."""
        root = self.folder / "state" / "evidence"
        return sorted(path.name for path in root.iterdir()) if root.exists() else []

    def calls(self) -> list[tuple[str, str]]:
        """What systemd was asked to do."""
        return [(call.verb, call.unit) for call in self.host.systemd.calls]
