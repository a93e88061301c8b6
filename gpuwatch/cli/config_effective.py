"""`gpuwatch config show --effective`: which rules hold for each GPU of this host, and with which limit.

What is written is not always what holds for a card: some rules are for other cards, and a limit in degrees is capped
at the card's own slowdown point. The policy's own functions say so; the daemon says which cards there are.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuwatch.cli import places
from gpuwatch.cli.output import ago, safe
from gpuwatch.config.limits import limit_shown
from gpuwatch.config.selector import ANY
from gpuwatch.model import units
from gpuwatch.model.errors import SourceError
from gpuwatch.model.gpu import GpuSample
from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import Reading
from gpuwatch.model.rule import Rule, Selector, Threshold
from gpuwatch.policy.conditions import limits

SLOWDOWN_POINT = "gpu.slowdown_point"
_WITH_UNIT = frozenset({"C", "W", "MHz", "%", "J"})


@dataclass(frozen=True)
class Effect:
    """One rule on one card. `why` says why it does not apply, or why its limit is not as written."""

    rule: str
    metric: str
    applies: bool
    limit: Threshold
    written: Threshold
    why: str = ""


class Effective:
    """The rules of the files on the GPUs that the daemon sees. `problem`: why nobody can say; "" else."""

    def __init__(self, rules: tuple[Rule, ...], run_dir: str) -> None:
        self._rules = rules
        self._view: Mapping[str, Any] = {}
        self.problem = self._old = ""
        try:
            self._view, self._old = places.fetch_view(run_dir)
        except SourceError as error:
            self.problem = str(error)
            return
        if not self._view["gpus"]:
            self.problem = f"gpuwatch sees no GPU (driver: {self._view['driver']['state'].replace('_', ' ')})"

    def data(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            "problem": self.problem,
            "stale": self._old,
            "utc_s": self._view.get("utc_s"),
            "gpus": [
                {
                    "index": card.index,
                    "uuid": card.uuid,
                    "name": card.name,
                    "lost": card.lost is not None,
                    "rules": [_effect_data(each) for each in effects(self._rules, card)],
                }
                for card in self._cards()
            ],
        }

    def text(self) -> str:
        """Comments, so that what is printed stays a configuration."""
        if self.problem:
            return f"# Which limits hold for each GPU can't be told: {safe(self.problem)}\n"
        age = ago(max(0.0, time.time() - float(self._view["utc_s"])))
        head = f"What these rules mean for the GPUs of this host, as gpuwatch saw them {age} ago"
        lines = [head + (f" ({self._old})" if self._old else "")]
        for card in self._cards():
            lines.append(f"GPU {card.index}, {card.name}, {card.uuid}")
            lines += _lines(self._rules, card)
        return "".join(f"# {safe(line)}\n" for line in lines)

    def _cards(self) -> Iterator[GpuSample]:
        for gpu in self._view.get("gpus", ()):
            readings = _readings(gpu["readings"])
            lost = "lost" if gpu["lost"] else None
            yield GpuSample(gpu["uuid"], gpu["index"], gpu["name"], gpu["pci"], readings, lost=lost)


def _readings(shown: Mapping[str, Mapping[str, Any]]) -> dict[str, Reading]:
    """What was read; the view's "not read" stands for no reading at all."""
    return {
        name: Reading(each["value"], each["problem"]) for name, each in shown.items() if each["problem"] != "not read"
    }


def effects(rules: Iterable[Rule], card: GpuSample) -> Iterator[Effect]:
    """Every enabled rule about a reading of GPUs; none of a lost card, which has no readings."""
    for rule in rules if card.lost is None else ():
        metric = METRICS.get(rule.metric or "")
        if rule.enabled and metric is not None and metric.scope == "gpu" and rule.threshold is not None:
            not_here = _excluded(rule, metric.name, card)
            limit = limits(rule, card)[0]
            why = not_here or "; ".join(_notes(rule, limit, card))
            yield Effect(rule.name, metric.name, not not_here, limit, rule.threshold, why)


def _excluded(rule: Rule, metric: str, card: GpuSample) -> str:
    """Why a rule is not for this card; "" when it is."""
    if not _selected(rule.only, card):
        return "the rule names other cards (only)"
    if rule.unless_supported is not None:
        other = card.reading(rule.unless_supported)
        if other is None or other.failed:
            return f"it is not known whether the card reports {rule.unless_supported}"
        if not other.unsupported:
            return f"the card reports {rule.unless_supported}"
    own = card.reading(metric)
    return f"the card does not report {metric}" if own is not None and own.unsupported else ""


def _selected(only: Selector, card: GpuSample) -> bool:
    return all(
        not globs or units.matches(text, globs) for globs, text in ((only.gpus, card.uuid), (only.models, card.name))
    )


def _notes(rule: Rule, limit: Threshold, card: GpuSample) -> Iterator[str]:
    point, written = card.reading(SLOWDOWN_POINT), rule.threshold
    if written is not None and written.above is not None and limit != written and point is not None:
        yield f"written: {written.above:g}; this card slows down at {point.value:g} C"
    if rule.only.workloads or rule.only.units:
        names = ["a workload" if name == ANY else name for name in (*rule.only.workloads, *rule.only.units)]
        yield f"only while {' or '.join(names)} works on it"


def _effect_data(effect: Effect) -> dict[str, Any]:
    return {
        "rule": effect.rule,
        "metric": effect.metric,
        "applies": effect.applies,
        "limit": _limit_data(effect.limit) if effect.applies else None,
        "written": _limit_data(effect.written),
        "why": effect.why,
    }


def _limit_data(limit: Threshold) -> dict[str, float]:
    return {word: number for word, number in (("above", limit.above), ("below", limit.below)) if number is not None}


def _lines(rules: Iterable[Rule], card: GpuSample) -> Iterator[str]:
    if card.lost is not None:
        yield "  lost: nothing can be said about it"
        return
    found = tuple(effects(rules, card))
    width = max((len(each.rule) for each in found), default=0)
    for each in found:
        yield f"  {each.rule:<{width}}  {_words(each)}"


def _words(effect: Effect) -> str:
    if not effect.applies:
        return f"not for this card: {effect.why}"
    metric = METRICS[effect.metric]
    ((word, number),) = _limit_data(effect.limit).items()
    unit = f" {metric.unit}" if metric.unit in _WITH_UNIT else ""
    note = f" ({effect.why})" if effect.why else ""
    return f"{effect.metric} {word} {limit_shown(metric, number)}{unit}{note}"
