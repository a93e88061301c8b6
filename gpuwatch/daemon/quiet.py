"""Can a policy make anything of this moment? It saves time alone: a week of a big host has a million rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from gpuwatch.model.gpu import DriverState, GpuReport, GpuSample
from gpuwatch.model.instant import Instant
from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import Reading
from gpuwatch.model.rule import Rule
from gpuwatch.model.settings import Settings
from gpuwatch.policy.conditions import CAPS, POINTS, limits

Judged = tuple[str, tuple[Rule, ...]]


class Quiet:
    """`passes` is True while no limit of the settings' rules is crossed, no card is lost, and no rule about a change
    needs to see the value."""

    def __init__(self, settings: Settings) -> None:
        rules = [rule for rule in settings.rules if rule.enabled and rule.metric is not None]
        self._of_gpus = _by_metric([rule for rule in rules if rule.change_over_s is None], "gpu")
        self._of_host = _by_metric([rule for rule in rules if rule.change_over_s is None], "host")
        changing = [rule for rule in rules if rule.change_over_s is not None]
        self._changing = tuple({rule.metric for rule in changing if rule.metric is not None})
        self._look_again_s = min((rule.change_over_s or 0.0 for rule in changing), default=0.0) / POINTS
        self._last: dict[tuple[str, str], Optional[float]] = {}

    def passes(self, report: GpuReport, host: Mapping[str, Reading], shown: Optional[Instant], now: Instant) -> bool:
        """`shown`: when the policy was last shown a moment; the first one it must see."""
        age = None if shown is None else now.since(shown)
        if age is None or report.state is not DriverState.OK or any(sample.lost for sample in report.samples):
            return False
        changed = self._changed(report)
        if changed or (self._changing and age >= self._look_again_s):
            return False
        for metric, rules in self._of_host:
            if any(_holds(rule, host.get(metric), None) for rule in rules):
                return False
        return not any(
            _holds(rule, sample.reading(metric), sample)
            for metric, rules in self._of_gpus
            for sample in report.samples
            for rule in rules
        )

    def _changed(self, report: GpuReport) -> bool:
        changed = False
        for sample in report.samples:
            for metric in self._changing:
                reading = sample.reading(metric)
                number = None if reading is None else reading.value
                if self._last.get((sample.uuid, metric), number) != number:
                    changed = True
                self._last[(sample.uuid, metric)] = number
        return changed


def _by_metric(rules: list[Rule], scope: str) -> tuple[Judged, ...]:
    found: dict[str, tuple[Rule, ...]] = {}
    for rule in rules:
        if rule.metric is not None and METRICS[rule.metric].scope == scope:
            found[rule.metric] = (*found.get(rule.metric, ()), rule)
    return tuple(found.items())


def _holds(rule: Rule, reading: Optional[Reading], sample: Optional[GpuSample]) -> bool:
    if reading is None or reading.value is None or rule.threshold is None:
        return False
    if rule.unless_supported is not None and sample is not None:
        other = sample.reading(rule.unless_supported)
        if other is None or not other.unsupported:
            return False
    threshold = limits(rule, sample)[0] if rule.metric in CAPS else rule.threshold
    return threshold.holds(reading.value)
