"""Was it as the story expects? Expectations against the account, both in the order of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gpuwatch.catalog import texts
from gpuwatch.config.kinds import number_text
from gpuwatch.daemon.told import Entry
from gpuwatch.model import reason
from gpuwatch.model.event import Scalar
from gpuwatch.model.metric import METRICS
from gpuwatch.simulation import scenario as seen
from gpuwatch.simulation.scenario import Expectation, Scenario

SLACK_S = 1e-6  # moments are sums of floats


def failures(scenario: Scenario, entries: Sequence[Entry]) -> tuple[str, ...]:
    """A sentence for each expectation that was not met, then for each thing that nobody expected; () is as expected."""
    said: list[str] = []
    used: set[int] = set()
    since_s = 0.0
    for expected in scenario.expect:
        if expected.never:
            found = next((each for each in entries if _fits(expected, each) and _in_time(expected, each)), None)
            if found is not None:
                said.append(f"{expected.place}: {moment(found.at_s)} {told(found)}, and that must never be")
            continue
        number = _first(expected, entries, used, since_s)
        if number is None:
            said.append(f"{expected.place}: expected that {_wanted(expected)}; {_instead(expected, entries, since_s)}")
        else:
            used.add(number)
            since_s = max(since_s, entries[number].at_s)
    if scenario.strict:
        said += [
            f"not expected: {moment(each.at_s)} {told(each)}"
            for number, each in enumerate(entries)
            if each.verb in seen.STRICT and number not in used
        ]
    return tuple(said)


def _first(expected: Expectation, entries: Sequence[Entry], used: set[int], since_s: float) -> Optional[int]:
    for number, each in enumerate(entries):
        if number not in used and each.at_s >= since_s - SLACK_S and _fits(expected, each) and _in_time(expected, each):
            return number
    return None


def _fits(expected: Expectation, entry: Entry) -> bool:
    if expected.verb != entry.verb or expected.name not in ("", entry.name):
        return False
    if expected.on not in ("", entry.on) or expected.rule not in ("", entry.rule):
        return False
    return expected.reason in ("", entry.reason) and expected.level in (None, entry.level)


def _in_time(expected: Expectation, entry: Entry) -> bool:
    late = expected.to_s is not None and entry.at_s > expected.to_s + SLACK_S
    return entry.at_s >= expected.from_s - SLACK_S and not late


def _instead(expected: Expectation, entries: Sequence[Entry], since_s: float) -> str:
    """What comes nearest, for whoever has to find out why."""
    near = [each for each in entries if _fits(expected, each)]
    if near:
        times = ", ".join(moment(each.at_s) for each in near[:4])
        order = " (in the order of the expectations it is too early)" if near[-1].at_s < since_s else ""
        return f"it was at {times}{order}"
    alike = [each for each in entries if each.verb == expected.verb and expected.name in ("", each.name)]
    if alike:
        return f"but {moment(alike[0].at_s)} {told(alike[0])}"
    return "it never happened"


def _wanted(expected: Expectation) -> str:
    entry = Entry(
        0.0, expected.verb, expected.name, expected.on, expected.rule, expected.reason, expected.level or 0, {}
    )
    if expected.to_s is None:
        when = f" from {moment(expected.from_s)} on" if expected.from_s else ""
    else:
        when = f" within {moment(expected.from_s)} to {moment(expected.to_s)}"
    return told(entry) + when


def moment(seconds: float) -> str:
    """17.25s, 1h02m05s: from the beginning of the story."""
    if seconds < 120:
        return f"{number_text(round(seconds, 2))}s"
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return (f"{hours}h{minutes:02}m" if hours else f"{minutes}m") + f"{left:02}s"


def told(entry: Entry) -> str:
    """The entry in a few plain words, without its moment."""
    name, on = entry.name or "something", entry.on
    here = f" on {on}" if on and on != name else ""
    because = f" ({_why(entry.reason)})" if entry.reason not in ("", reason.CLEARED, entry.verb) else ""
    rule = f" for {entry.rule}" if entry.rule and entry.rule != name else ""
    if entry.verb in (seen.FIRES, seen.CLEARS):
        return f"{name} {entry.verb}{here}{because}{_reading(entry)}"
    if entry.verb == seen.THROTTLES:
        return f"{name} is throttled, level {entry.level}{rule}{because}"
    if entry.verb == seen.WOULD:
        return f"would {name}{here}{rule}"
    if entry.verb == seen.REASON:
        return f"nothing is done{here}{rule}: {_why(name)}"
    if entry.verb == seen.TELLS:
        return f"people are told{here}: {name}"
    if entry.verb == seen.SAVES:
        return f"evidence is saved{here}{rule}"
    if entry.verb in (seen.OPENS, seen.CLOSES):
        return f"an incident {entry.verb}{here}{rule}{because}"
    if entry.verb == seen.REFUSES:
        return f"the order {name} is refused: {entry.reason}"
    if entry.verb in (seen.REFUSED, seen.FAILED, seen.WITHDRAWN, seen.UNKNOWN, seen.OVERTAKEN, seen.UNDONE):
        return f"the {name}{' of ' + on if on else ''} is {entry.verb}{rule}{because}"
    words = {seen.STOPS: "is asked to stop", seen.KILLS: "gets SIGKILL", seen.STOPPED: "is gone", seen.HOLDS: "is held"}
    return f"{name} {words[entry.verb]}{here}{rule}"


def _why(code: str) -> str:
    """A reason code in the words that messages use."""
    return texts.text("en", f"reason.{code}") if texts.has(f"reason.{code}") else code.replace("_", " ")


def _reading(entry: Entry) -> str:
    """ ": GPU temperature 94.5 C, limit 90 C" of a rule that fires on a reading, ": Xid 79" of one on an event."""
    facts = entry.facts
    metric, number, limit = facts.get("metric"), facts.get("value"), facts.get("limit")
    if isinstance(metric, str) and isinstance(number, (int, float)):
        words = texts.text("en", f"metric.{metric}") if texts.has(f"metric.{metric}") else metric
        unit = METRICS[metric].unit
        if unit == "0/1":
            return f": {words}"
        shown = ", ".join([_amount(number, unit), *([f"limit {_amount(limit, unit)}"] if _is_number(limit) else [])])
        return f": {words} {shown}"
    for name, words in (("xid", "Xid"), ("sxid", "SXid")):
        if facts.get(name):
            return f": {words} {facts[name]}"
    return ""


def _is_number(scalar: Scalar) -> bool:
    return isinstance(scalar, (int, float)) and not isinstance(scalar, bool)


def _amount(scalar: Scalar, unit: str) -> str:
    """With its unit; ratios in percent, bytes in the largest unit that fits."""
    number = float(scalar) if isinstance(scalar, (int, float)) else 0.0
    if unit == "ratio":
        return f"{number * 100:.3g}%"
    if unit == "bytes":
        return f"{number / 1024**3:.3g} GiB"
    return f"{number:.4g} {unit}".strip()
