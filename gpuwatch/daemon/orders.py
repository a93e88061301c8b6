"""What somebody orders on the command line: judged against what stands, and what it comes to. No input or output.

The daemon obeys between two cycles; without one the command line does it on the store (offline.py). Either way the
orders are one note beside the policy's document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from typing import Any, Callable, Optional

from gpuwatch.catalog.text import clean
from gpuwatch.model.codec import decode
from gpuwatch.model.incident import Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent
from gpuwatch.model.orders import Order, Orders, Silence, given
from gpuwatch.model.pci import canonical
from gpuwatch.model.rule import DESTRUCTIVE, REVERSIBLE
from gpuwatch.policy.by_hand import ByHand, acknowledge, close_incident
from gpuwatch.policy.state import PolicyState
from gpuwatch.system.protocols import Log

ORDER_ID = "2042ddd6cd4548579b26de64f25528b4"  # MESSAGE_ID; fixed for ever
NOTICE = 5
DAY_S = 86400.0
MOST_DISARM_S, MOST_MAINTENANCE_S, MOST_SILENCE_S = 365 * DAY_S, 7 * DAY_S, 30 * DAY_S
MOST_SILENCES = 100
MOST_TEXT = 200
# What an order may say beside `what`.
ARGUMENTS = ("what", "for_s", "comment", "rule", "gpu", "unit", "host_only", "id", "release_gpu", "sudo")


@dataclass(frozen=True)
class Standing:
    """What an order is judged against."""

    now: Instant
    orders: Orders
    policy: PolicyState
    intents: tuple[Intent, ...] = ()
    rules: tuple[str, ...] = ()  # names in the configuration


@dataclass(frozen=True)
class Obeyed:
    """What it comes to. `answer` is for whoever asked, {"error": ...} when nothing was done; `said` for the log."""

    orders: Orders
    policy: PolicyState
    answer: Mapping[str, Any]
    said: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    done: Optional[ByHand] = None
    release_s: Optional[float] = None  # let go of the GPUs for so long
    resume: bool = False  # take them up again


class _Refused(Exception):
    """Nothing is done; why, for whoever asked."""


def who(uid: int, sudo: object = "") -> str:
    """Who orders: the user of the socket's other end; the name behind sudo is only what that one says."""
    name = "root" if uid == 0 else f"uid {uid}"
    hint = clean(str(sudo or ""), 32)
    return f"{name} (sudo: {hint})" if hint and hint != name else name


def obey(arguments: Mapping[str, Any], by: str, standing: Standing) -> Obeyed:
    """One order carried out on what stands."""
    what = str(arguments.get("what", ""))
    if what not in _WAYS:
        return _refusal(standing, f"no order {clean(what, 40)!r} (known: {', '.join(_WAYS)})")
    asked = _Asked(arguments, by, standing)
    try:
        obeyed = _WAYS[what](asked)
    except _Refused as refused:
        return _refusal(standing, str(refused))
    fields = {"MESSAGE_ID": ORDER_ID, "GPUWATCH_ORDER": what, "GPUWATCH_BY": by, "GPUWATCH_COMMENT": asked.comment}
    return replace(obeyed, fields={**fields, **obeyed.fields})


def log_order(log: Log, obeyed: Obeyed) -> None:
    """One line for an order that was carried out."""
    if obeyed.said:
        log.write(NOTICE, obeyed.said, obeyed.fields)


def log_ended(log: Log, before: Orders, after: Orders) -> None:
    """One line for each that has ended by itself."""
    ended = [
        (name, text)
        for name, text, old, new in (
            ("disarm", "armed again: the time of the order is over", before.disarmed, after.disarmed),
            ("maintenance", "the maintenance window is over", before.maintenance, after.maintenance),
        )
        if old is not None and new is None
    ]
    left = {silence.id for silence in after.silences}
    ended += [("silence", f"silence {each.id} is over") for each in before.silences if each.id not in left]
    for name, text in ended:
        log.write(NOTICE, text, {"MESSAGE_ID": ORDER_ID, "GPUWATCH_ORDER": name, "GPUWATCH_BY": "time"})


def orders_of(stored: Mapping[str, Any], now: Instant) -> Orders:
    """What is stored of them. When that can't be read nobody knows what was forbidden: disarmed, and it says why."""
    if stored.get("orders") is None:
        return Orders()
    try:
        return decode(Orders, stored["orders"])
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        problem = clean(f"the stored orders can't be read ({error}); say gpuwatch arm once you have looked")
        return Orders(disarmed=Order(now, None, "gpuwatch", problem))


def current(orders: Orders, now: Instant, intents: tuple[Intent, ...], policy: PolicyState) -> Orders:
    """Without what has ended: by time, or because the action or the incident is no more."""
    known = {intent.id for intent in intents} | {f"#{number}" for number in policy.incidents}
    return replace(
        orders.at(now),
        released=tuple(each for each in orders.released if each in known),
        vetoed=tuple(each for each in orders.vetoed if each in known),
    )


# The orders, one function each


@dataclass(frozen=True)
class _Asked:
    """One order with what it is judged against."""

    arguments: Mapping[str, Any]
    by: str
    standing: Standing

    @property
    def comment(self) -> str:
        return self.text("comment")

    def text(self, name: str) -> str:
        """An argument as one clean line."""
        given_one = self.arguments.get(name)
        return clean(str(given_one), MOST_TEXT) if given_one is not None else ""

    def order(self, most_s: float, needed: bool) -> Order:
        """From now on, for the time that was asked for."""
        for_s = self.arguments.get("for_s")
        if for_s is None and not needed:
            return given(self.standing.now, None, self.by, self.comment)
        if not isinstance(for_s, (int, float)) or isinstance(for_s, bool) or not 0 < for_s <= most_s:
            raise _Refused(f"expected a time of at most {most_s / DAY_S:.0f} days")
        return given(self.standing.now, float(for_s), self.by, self.comment)

    def done(self, orders: Orders, said: str, order: Optional[Order] = None, **answer: Any) -> Obeyed:
        """The orders as they are from now on."""
        until = None if order is None or order.until is None else order.until.utc_s
        if order is not None:
            said += f" {_until(until)}"
            answer["until_utc_s"] = until
        if self.comment:
            said += f": {self.comment}"
        fields = {} if until is None else {"GPUWATCH_UNTIL": _utc(until)}
        return Obeyed(orders, self.standing.policy, {"done": True, **answer}, said, fields)


def _disarm(asked: _Asked) -> Obeyed:
    order = asked.order(MOST_DISARM_S, needed=False)
    return asked.done(replace(asked.standing.orders, disarmed=order), f"DISARMED by {asked.by}", order)


def _arm(asked: _Asked) -> Obeyed:
    orders = asked.standing.orders
    if orders.disarmed is None:
        return Obeyed(orders, asked.standing.policy, {"done": True, "was": "armed"})
    return asked.done(replace(orders, disarmed=None), f"armed again by {asked.by}", was="disarmed")


def _maintenance_on(asked: _Asked) -> Obeyed:
    order = asked.order(MOST_MAINTENANCE_S, needed=True)
    release = bool(asked.arguments.get("release_gpu"))
    said = f"maintenance begun by {asked.by}" + (", GPUs released, heat is not watched" if release else "")
    obeyed = asked.done(replace(asked.standing.orders, maintenance=order), said, order, released=release)
    return replace(obeyed, release_s=float(asked.arguments["for_s"]) if release else None)


def _maintenance_off(asked: _Asked) -> Obeyed:
    obeyed = asked.done(replace(asked.standing.orders, maintenance=None), f"maintenance ended by {asked.by}")
    return replace(obeyed, resume=True)


def _silence(asked: _Asked) -> Obeyed:
    orders = asked.standing.orders
    if not asked.comment:
        raise _Refused("a silence needs a comment: others will ask why they were not told")
    if len(orders.silences) >= MOST_SILENCES:
        raise _Refused(f"there are {MOST_SILENCES} silences already; expire some")
    order = asked.order(MOST_SILENCE_S, needed=True)
    subject = _subject(asked)
    if subject is None and not asked.text("rule"):
        raise _Refused("name what to silence: a rule, a GPU, a unit or the host")
    silence = Silence(f"s{orders.next_silence}", order, asked.text("rule") or "*", subject)
    about = silence.rule if subject is None else f"{silence.rule} on {subject.id or 'the host'}"
    answer: dict[str, Any] = {"id": silence.id}
    rules = asked.standing.rules
    if rules and not any(fnmatchcase(rule, silence.rule) for rule in rules):
        answer["warning"] = f"no rule matches {silence.rule!r} now"
    after = replace(orders, silences=(*orders.silences, silence), next_silence=orders.next_silence + 1)
    obeyed = asked.done(after, f"silence {silence.id} of {about} by {asked.by}", order, **answer)
    return replace(obeyed, fields={**obeyed.fields, "GPUWATCH_RULE": silence.rule})


def _subject(asked: _Asked) -> Optional[Subject]:
    gpu, unit, host = asked.text("gpu"), asked.text("unit"), bool(asked.arguments.get("host_only"))
    if sum(map(bool, (gpu, unit, host))) > 1:
        raise _Refused("a GPU, a unit or the host: one of them")
    if gpu:
        return Subject("gpu", find_gpu(gpu, asked.standing.policy))
    return Subject("unit", unit) if unit else Subject("host", "") if host else None


def find_gpu(wanted: str, policy: PolicyState) -> str:
    """The UUID of the card with this index, PCI address or beginning of its UUID; the address of an unknown card."""
    address = canonical(wanted) if ":" in wanted else None
    begins = wanted.lower().removeprefix("gpu-")
    found = [
        uuid
        for uuid, known in policy.gpus.items()
        if (address is not None and known.pci == address)
        or (wanted.isascii() and wanted.isdigit() and known.index == int(wanted))
    ] or [uuid for uuid in policy.gpus if begins and uuid.lower().removeprefix("gpu-").startswith(begins)]
    if address is not None and not found:
        return address
    if len(found) != 1:
        count = f"{len(found)} GPUs" if found else "no GPU"
        raise _Refused(f"{wanted}: {count} of that name; see: gpuwatch gpu list")
    return found[0]


def _expire(asked: _Asked) -> Obeyed:
    orders, wanted = asked.standing.orders, asked.text("id")
    left = tuple(silence for silence in orders.silences if silence.id != wanted)
    if len(left) == len(orders.silences):
        raise _Refused(f"no silence {wanted}; see: gpuwatch silence list")
    return asked.done(replace(orders, silences=left), f"silence {wanted} ended by {asked.by}", id=wanted)


def _acknowledge(asked: _Asked) -> Obeyed:
    number = _incident(asked)
    settled = acknowledge(asked.standing.policy, number, asked.standing.now, asked.by, asked.comment)
    if settled.problem:
        raise _Refused(settled.problem)
    obeyed = asked.done(asked.standing.orders, f"incident {number} acknowledged by {asked.by}", incident=number)
    fields = {**obeyed.fields, "GPUWATCH_INCIDENT": str(number)}
    return replace(obeyed, policy=settled.state, done=settled.done, fields=fields)


def _close(asked: _Asked) -> Obeyed:
    number = _incident(asked)
    if not asked.comment:
        raise _Refused("closing needs a reason: it is kept with the incident")
    settled = close_incident(asked.standing.policy, number, asked.standing.now, asked.by, asked.comment)
    if settled.problem:
        raise _Refused(settled.problem)
    obeyed = asked.done(asked.standing.orders, f"incident {number} closed by {asked.by}", incident=number)
    fields = {**obeyed.fields, "GPUWATCH_INCIDENT": str(number)}
    return replace(obeyed, policy=settled.state, done=settled.done, fields=fields)


def _incident(asked: _Asked) -> int:
    """The number in 17 or gpu-07#17; another host's incident is a mistake that matters."""
    wanted = asked.text("id")
    match = re.fullmatch(r"(?:(.*)#)?([0-9]{1,9})", wanted)
    if match is None:
        raise _Refused(f"{wanted}: expected the number of an incident, as `gpuwatch incident list` shows it")
    incident = asked.standing.policy.incidents.get(str(int(match[2])))
    if match[1] and incident is not None and incident.id != wanted:
        raise _Refused(f"{wanted} is of another host; here it would be {incident.id}")
    return int(match[2])


def _release_hold(asked: _Asked) -> Obeyed:
    wanted = asked.text("id")
    holds = [intent for intent in asked.standing.intents if intent.action == "hold" and intent.open]
    found = [each for each in holds if wanted in (each.id, each.target, each.target.rsplit(".", 1)[0])]
    if not wanted or not found:
        raise _Refused(f"nothing is held as {wanted or 'that'}; see: gpuwatch hold list")
    orders, ids = asked.standing.orders, tuple(intent.id for intent in found)
    released = (*(each for each in orders.released if each not in ids), *ids)
    units = ", ".join(sorted({intent.target for intent in found}))
    obeyed = asked.done(
        replace(orders, released=released), f"{units} released by {asked.by}", ids=list(ids), units=units
    )
    return replace(obeyed, fields={**obeyed.fields, "GPUWATCH_ACTION": " ".join(ids), "GPUWATCH_TARGET": units})


def _veto(asked: _Asked) -> Obeyed:
    wanted = asked.text("id")
    if re.fullmatch(r"a[0-9]+-[0-9]+", wanted):
        key = _action(wanted, asked.standing.intents)
        said = f"action {wanted}"
    else:
        number = _incident(asked)
        if str(number) not in asked.standing.policy.incidents:
            raise _Refused(f"incident {number} is not open")
        key, said = f"#{number}", f"every further action of incident {number}"
    orders = asked.standing.orders
    vetoed = (*(each for each in orders.vetoed if each != key), key)
    obeyed = asked.done(replace(orders, vetoed=vetoed), f"{said} vetoed by {asked.by}", id=key)
    return replace(obeyed, fields={**obeyed.fields, "GPUWATCH_ACTION": key})


def _revert(asked: _Asked) -> Obeyed:
    """What is in force is put back now, and not done again for this incident."""
    wanted = asked.text("id")
    intent = next((each for each in asked.standing.intents if each.id == wanted), None)
    if intent is None:
        raise _Refused(f"no action {wanted or 'of that name'}; see: gpuwatch action list")
    if intent.action not in REVERSIBLE:
        raise _Refused(f"action {wanted} can't be put back: {intent.action} {intent.target}")
    if not intent.open:
        raise _Refused(f"action {wanted} is over already ({intent.state.value})")
    return _release_hold(asked) if intent.action == "hold" else _veto(asked)


def _action(wanted: str, intents: tuple[Intent, ...]) -> str:
    intent = next((each for each in intents if each.id == wanted), None)
    if intent is None:
        raise _Refused(f"no action {wanted}; see: gpuwatch action list")
    if not intent.open:
        raise _Refused(f"action {wanted} is over already ({intent.state.value})")
    if intent.action in DESTRUCTIVE and intent.sent is not None:
        raise _Refused(f"action {wanted} is under way: {intent.action} {intent.target} can't be called back")
    return wanted


_WAYS: Mapping[str, Callable[[_Asked], Obeyed]] = {
    "disarm": _disarm,
    "arm": _arm,
    "maintenance-on": _maintenance_on,
    "maintenance-off": _maintenance_off,
    "silence": _silence,
    "expire": _expire,
    "acknowledge": _acknowledge,
    "close": _close,
    "release-hold": _release_hold,
    "veto": _veto,
    "revert": _revert,
}


def _refusal(standing: Standing, why: str) -> Obeyed:
    return Obeyed(standing.orders, standing.policy, {"error": why})


def _until(utc_s: Optional[float]) -> str:
    return "until it is taken back" if utc_s is None else f"until {_utc(utc_s)}"


def _utc(utc_s: float) -> str:
    return datetime.fromtimestamp(utc_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
