"""Short words for what tests are full of: moments, samples, reports, rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Optional

from gpuwatch.model.event import Event, Scalar
from gpuwatch.model.gpu import Attribution, DriverState, GpuReport, GpuSample, Owner
from gpuwatch.model.instant import Instant
from gpuwatch.model.reading import Reading, failed, value
from gpuwatch.model.rule import Clear, EventMatch, Rule, Severity, Step, Threshold
from gpuwatch.model.settings import Grace, Mode, Settings, Workload
from gpuwatch.policy.state import Inputs, Outcome, PolicyState
from gpuwatch.policy.step import step

BOOT, NEXT_BOOT = "1" * 32, "2" * 32
START_UTC_S = 1_796_000_000.0  # 2026-11-30
PCI = "0000:5e:00.0"


def at(seconds: float, boot: str = BOOT) -> Instant:
    """A moment, in seconds after the boot of the story."""
    return Instant(boot, seconds, START_UTC_S + seconds)


def uuid(index: int) -> str:
    """UUID of the index-th GPU."""
    return f"GPU-{index:08x}-52be-4f08-91a6-0c7be2d4158f"


def gpu(index: int = 0, temperature: float = 60.0, lost: Optional[str] = None, **readings: Any) -> GpuSample:
    """An H100-like card (slowdown at 89 C, shutdown at 95 C): a temperature makes the margins.

    A reading is given as a number or a Reading, by the part of its name after "gpu.".
    """
    known: dict[str, Reading] = {}
    if lost is None:
        known = {
            "gpu.temperature": value(temperature),
            "gpu.slowdown_margin": value(89.0 - temperature),
            "gpu.shutdown_margin": value(95.0 - temperature),
            "gpu.power": value(650.0),
            "gpu.memory_used": value(60e9),
            "gpu.memory_total": value(80e9),
        }
        for name, given in readings.items():
            known[f"gpu.{name}"] = given if isinstance(given, Reading) else value(given)
    pci = f"0000:{0x5E + index:02x}:00.0"
    return GpuSample(uuid(index), index, "NVIDIA H100 80GB HBM3", pci, known, lost=lost)


BROKEN = failed("the call failed")


def report(moment: Instant, *samples: GpuSample, state: DriverState = DriverState.OK, **more: Any) -> GpuReport:
    """What the driver said at a moment."""
    return GpuReport(state, taken=moment, samples=samples, driver_version="580.65.06", **more)


def owner(unit: str = "train@llama.service", pid: int = 4242, used: int = 60 << 30, kind: str = "unit") -> Owner:
    """A process of a unit."""
    return Owner(pid, 1000 + pid, 1.0, "python3", 1001, "ml-team", kind, unit, None, f"/system.slice/{unit}", used)


def attribution(moment: Instant, *owners: Owner, index: int = 0, confirmed: bool = True, **more: Any) -> Attribution:
    """Who uses a GPU, confirmed by the double reading unless said otherwise."""
    pids = tuple(each.pid for each in owners) if confirmed else ()
    return Attribution(uuid(index), moment, owners, pids, **more)


HOT = Rule(
    "gpu-critical",
    Severity.CRITICAL,
    metric="gpu.shutdown_margin",
    threshold=Threshold(below=2),
    for_s=5,
    clear=Clear(Threshold(above=8), 60),
    ladder=(Step(("stop",)),),
)
HOT_ABSOLUTE = Rule(
    "gpu-hot-absolute",
    Severity.CRITICAL,
    metric="gpu.temperature",
    threshold=Threshold(above=95),
    for_s=5,
    clear=Clear(Threshold(below=85), 60),
    unless_supported="gpu.shutdown_margin",
)
ACTING_STOPPED = Rule(
    "acting-stopped",
    Severity.CRITICAL,
    metric="host.acting_stopped",
    threshold=Threshold(above=0.5),
    clear=Clear(Threshold(below=0.5), 60),
)
WARM = Rule(
    "gpu-hot",
    Severity.WARNING,
    metric="gpu.slowdown_margin",
    threshold=Threshold(below=3),
    for_s=30,
    clear=Clear(Threshold(above=8), 60),
)
XID = Rule("xid-host-restart", Severity.CRITICAL, event=EventMatch("xid", classes=("host_restart",)), quiet_for_s=None)
LOST = Rule(
    "gpu-lost",
    Severity.CRITICAL,
    metric="gpu.lost",
    threshold=Threshold(above=0.5),
    clear=Clear(Threshold(below=0.5), 60),
)
SILENT = Rule(
    "driver-silent",
    Severity.CRITICAL,
    metric="host.driver_silent",
    threshold=Threshold(above=10),
    clear=Clear(Threshold(below=3), 5),
)
TRAINING = Workload("training", units=("train@*.service",))
NO_GRACE = Grace(0, 0)
SETTINGS = Settings(mode=Mode.ENFORCE, workloads=(TRAINING,), rules=(HOT, WARM, XID, LOST, SILENT), grace=NO_GRACE)


def xid(number: int, moment: Instant, seen: Optional[Instant] = None, pci: str = PCI) -> Event:
    """An Xid of the kernel log."""
    fields: dict[str, Scalar] = {"xid": number, "pci": pci, "pid": None, "process": None}
    return Event("xid", moment, seen or moment, "journal", fields, text=f"NVRM: Xid (PCI:{pci[:-2]}): {number}")


class Story:
    """Steps of the policy one after another, with what came out of each."""

    def __init__(self, settings: Settings = SETTINGS, state: Optional[PolicyState] = None) -> None:
        self.settings = settings
        self.state = state or PolicyState()
        self.outcomes: list[Outcome] = []

    def step(self, inputs: Inputs) -> Outcome:
        """One step."""
        outcome = step(self.state, replace(inputs, host_name="gpu-07"), self.settings)
        self.state = outcome.state
        self.outcomes.append(outcome)
        return outcome

    def hot(self, seconds: float, temperature: float = 94.0, **more: Any) -> Outcome:
        """One second with one card of that temperature, used by a unit of the workload."""
        now = at(seconds)
        given: dict[str, Any] = {
            "report": report(now, gpu(0, temperature)),
            "attributions": (attribution(now, owner()),),
        }
        return self.step(Inputs(now, **{**given, **more}))

    def codes(self) -> list[str]:
        """All reason codes so far."""
        return [decision.code for outcome in self.outcomes for decision in outcome.decisions]

    def told(self) -> list[str]:
        """All transitions so far."""
        return [transition.name for outcome in self.outcomes for transition in outcome.transitions]

    def run(self, seconds: Sequence[float], temperature: float = 94.0, **more: Any) -> Outcome:
        """Several seconds alike; the last outcome."""
        for second in seconds:
            outcome = self.hot(second, temperature, **more)
        return outcome
