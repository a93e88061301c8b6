"""One look at the GPUs with the rules' limits, for `check` without a daemon. Judges, never acts."""

from __future__ import annotations

from gpuwatch.model.gpu import DriverState
from gpuwatch.model.rule import Severity
from gpuwatch.model.settings import Settings
from gpuwatch.policy.state import Inputs, PolicyState
from gpuwatch.policy.step import step
from gpuwatch.system.protocols import Clock, GpuDriver

WAIT_S = 8.0  # the first child has to start and to ask the driver


def probe(gpus: GpuDriver, settings: Settings, clock: Clock, why: str) -> tuple[str, str]:
    """A Nagios state and a sentence; `why` says why the daemon was not asked."""
    began = clock.monotonic()
    report = gpus.sample(False, True, WAIT_S)
    while report.state is DriverState.STARTING and clock.monotonic() - began < WAIT_S:
        report = gpus.sample(False, True, 1.0)
    if report.state is DriverState.ABSENT:
        return "WARNING", f"{why}; no NVIDIA driver is loaded"
    if report.state is not DriverState.OK:
        return "CRITICAL", f"{why}; GPU driver {report.state.value.replace('_', ' ')} {report.reason}".rstrip()
    now = clock.now()
    outcome = step(PolicyState(), Inputs(now, report, period_s=settings.interval_s), settings)
    crossed = {(alert.label, alert.rule) for alert in outcome.state.alerts.values()}
    lost = [f"GPU {sample.index} lost" for sample in report.samples if sample.lost]
    critical = {rule.name for rule in settings.rules if rule.severity is Severity.CRITICAL}
    words = ", ".join([*lost, *(f"{label} {rule}" for label, rule in sorted(crossed))])
    if lost or any(rule in critical for _, rule in crossed):
        return "CRITICAL", f"{words}; {why}"
    return "WARNING", f"{words or f'{len(report.samples)} GPUs read, nothing crossed'}; {why}"
