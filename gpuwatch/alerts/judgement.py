"""Why this one, and how sure: the choice of a victim (policy/victims.py) and the doubts about a heat
(policy/plausibility.py) in words, from the facts that they leave with a cause. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from gpuwatch.alerts.words import Words, foreign, number_of
from gpuwatch.catalog.texts import has
from gpuwatch.model import reason
from gpuwatch.model.event import Scalar

# What a witness goes by, in which unit; the others are named without a number.
_UNITS = {
    "memory_temperature": "C",
    "core_temperature": "C",
    "rising": "C",
    "peers": "C",
    "clock_drop": "%",
    "fan": "%",
    "utilisation": "%",
    "power": "W",
}


def chosen(words: Words, facts: Mapping[str, Scalar]) -> Optional[str]:
    """ "train@llama.service chosen: lowest priority, largest user (41 GiB)"; None where nothing was chosen."""
    because = [code for code in _codes(facts.get("victim_because")) if has(f"because.{code}")]
    if not facts.get("victim") or not because:
        return None
    unit = foreign(facts["victim"])
    why = words.say("join").join(words.say(f"because.{code}") for code in because)
    size = number_of(facts.get("victim_bytes"))
    if not size or size < 0:
        return words.say("chosen", unit=unit, because=why)
    return words.say("chosen.size", unit=unit, because=why, size=words.quantity("gpu.memory_used", size))


def considered(words: Words, facts: Mapping[str, Scalar]) -> list[str]:
    """A line for each unit that was looked at and not chosen, with the reason."""
    lines = []
    for entry in _codes(facts.get("considered")):
        unit, _, told = entry.rpartition("=")
        verdict, _, used = told.partition(":")
        if not unit or verdict == "chosen":
            continue
        key = f"verdict.{verdict}"
        why = words.say(key) if has(key) else words.reason(verdict)
        if used.isdigit() and int(used):
            size = words.quantity("gpu.memory_used", float(used[:15]))
            lines.append(words.say("verdict.size", unit=foreign(unit), why=why, size=size))
        else:
            lines.append(words.say("verdict", unit=foreign(unit), why=why))
    return lines


def doubts(words: Words, facts: Mapping[str, Scalar]) -> list[str]:
    """Why a heat is doubted, and who speaks for it, against it, or could not be asked; nothing when it is not."""
    suspect = str(facts.get("suspect") or "")
    if facts.get("reason") == reason.COOLING or not has(f"suspect.{suspect}"):
        return [words.say("doubt.cooling")] if facts.get("cooling") is True else []
    sides = [
        words.say(f"doubt.{side}", witnesses=heard or words.say("doubt.nobody"))
        for side in ("for", "against", "silent")
        if (heard := _witnesses(words, facts.get(f"witnesses_{side}"))) or side != "silent"
    ]
    line = words.say("doubt.join").join(sides)
    return [words.say(f"suspect.{suspect}"), line[:1].upper() + line[1:]]


def _witnesses(words: Words, listed: Scalar) -> str:
    named = []
    for each in _codes(listed):
        witness, _, number = each.partition("=")
        key = f"witness.{witness}"
        if not has(key):
            continue
        name, unit = words.say(key), _UNITS.get(witness)
        if unit and number.lstrip("-").isdigit():
            name += f" {words.degrees(float(number[:6]))}" if unit == "C" else f" {number[:6]} {unit}"
        named.append(name)
    return words.say("join").join(named)


def _codes(value: Scalar) -> list[str]:
    return value.split(" ") if isinstance(value, str) and value else []
