"""The policy over random histories: whatever is read, missed, restarted or set back, its promises hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model.codec import decode, encode
from gpuwatch.model.event import Event
from gpuwatch.model.gpu import DriverState
from gpuwatch.model.host import SubjectReadings
from gpuwatch.model.incident import Subject
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.orders import Order, Orders
from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value
from gpuwatch.model.rule import REVERSIBLE, Clear, Rule, Severity, Step, Threshold
from gpuwatch.model.settings import Grace
from gpuwatch.model.units import matches, refusal
from gpuwatch.model.wish import Wish
from gpuwatch.policy.conditions import usable
from gpuwatch.policy.state import ATTRIBUTION_S, STALE_S, Inputs, Outcome, PolicyState
from gpuwatch.policy.step import step
from tests.fakes.story import HOT, SETTINGS, WARM, XID, attribution, gpu, owner, report, uuid, xid

THROTTLE = replace(
    WARM,
    metric="gpu.shutdown_margin",
    threshold=Threshold(below=5),
    for_s=3,
    ladder=(Step(("throttle",)), Step(("stop", "hold"), after_s=20)),
)
MEMORY = Rule(
    "memory",
    Severity.CRITICAL,
    metric="host.memory_pressure_full",
    threshold=Threshold(above=20),
    for_s=3,
    clear=Clear(Threshold(below=5), 10),
    ladder=(Step(("stop",)),),
)
RULES = (HOT, replace(XID, ladder=HOT.ladder, name="site-xid"), THROTTLE, MEMORY, *SETTINGS.rules[2:])
POLICY = replace(SETTINGS, rules=RULES, protect=("train@holy.service",), grace=Grace(30, 120))
READINGS = st.one_of(
    st.floats(-70, 130).map(value),
    st.sampled_from(
        [UNSUPPORTED, failed("no"), value(0), value(255), value(-256), value(2.0**63), value(1), value(40)]
    ),
)
UNITS = ["train@a.service", "train@b.service", "train@holy.service", "nginx.service", "session-3.scope", "user.slice"]
OWNERS = st.lists(
    st.tuples(st.sampled_from(UNITS), st.integers(1, 9), st.sampled_from(["unit", "unit", "session", "docker"])),
    max_size=4,
)
LOOK = st.fixed_dictionaries(
    {
        "wait": st.sampled_from([0.5, 1.0, 1.0, 1.0, 1.0, 2.0, 7.0, 100.0]),
        "clock": st.sampled_from([0.0, 0.0, 0.0, 3600.0, -3600.0]),
        "reboot": st.sampled_from([False] * 30 + [True]),
        "restart": st.sampled_from([False] * 8 + [True]),
        "state": st.sampled_from([DriverState.OK] * 8 + [DriverState.SILENT, DriverState.ABSENT]),
        "lag": st.sampled_from([0.0] * 8 + [2.0, 10.0]),
        "margins": st.lists(READINGS, min_size=2, max_size=2),
        "lost": st.sampled_from([None] * 6 + ["GPU is lost"]),
        "owners": OWNERS,
        "list_lag": st.sampled_from([0.0] * 6 + [5.0, 30.0]),
        "confirmed": st.booleans(),
        "unknown": st.sampled_from([None] * 6 + ["pid 0 in the list"]),
        "xid": st.sampled_from([None] * 6 + [(79, 0.0), (79, 61.0), (79, 5.0), (13, 0.0)]),
        "busy": st.booleans(),
        "pressure": st.sampled_from([value(0.0), value(50.0), value(300.0), failed("no")]),
        "orders": st.sampled_from(["none"] * 8 + ["disarmed", "maintenance", "veto"]),
        "act": st.sampled_from(["nothing", "verified", "refused", "failed", "would_have", "withdrawn"]),
    }
)


class World:
    """Feeds the policy, carries its wishes out in the crudest way, and checks each outcome."""

    def __init__(self) -> None:
        self.state = PolicyState()
        self.boot, self.time, self.utc = 0, 1000.0, 1_796_000_000.0
        self.started = self.time
        self.intents: list[Intent] = []
        self.last_margin: dict[str, list[tuple[Instant, Reading]]] = {}

    def now(self, ago: float = 0.0) -> Instant:
        return Instant(f"{self.boot:032x}", self.time - ago, self.utc - ago)

    def look(self, given: dict[str, Any]) -> None:
        self.time += given["wait"]
        self.utc += given["wait"] + given["clock"]
        if given["reboot"]:
            self.boot, self.time = self.boot + 1, 20.0
            self.intents, self.started = [], self.time
        if given["restart"]:
            self.state, self.started = decode(PolicyState, encode(self.state)), self.time
        now, taken = self.now(), self.now(given["lag"])
        cards = [
            gpu(
                index,
                60,
                lost=given["lost"] if index == 1 else None,
                shutdown_margin=margin,
                utilisation=98 if given["busy"] else 0,
                power=650 if given["busy"] else 60,
            )
            for index, margin in enumerate(given["margins"])
        ]
        owners = tuple(
            owner(unit, pid, kind=kind) for unit, pid, kind in {each[1]: each for each in given["owners"]}.values()
        )
        listed = self.now(given["list_lag"])
        attributions = tuple(
            attribution(listed, *owners, index=index, confirmed=given["confirmed"], unknown=given["unknown"])
            for index in range(2)
        )
        events: tuple[Event, ...] = ()
        if given["xid"] is not None:
            events = (xid(given["xid"][0], self.now(given["xid"][1]), now),)
        seen = report(taken, *cards, state=given["state"])
        units = tuple(
            SubjectReadings(Subject("unit", name), name, listed, {"unit.memory_used": value(pid * 1e9)})
            for name, pid, _ in given["owners"]
        )
        host = {"host.memory_pressure_full": given["pressure"], "host.memory_total": value(100e9)}
        orders = Orders()
        if given["orders"] == "veto":
            orders = Orders(vetoed=tuple(intent.id for intent in self.intents))
        elif given["orders"] != "none":
            order = Order(now)
            orders = Orders(disarmed=order) if given["orders"] == "disarmed" else Orders(maintenance=order)
        inputs = Inputs(
            now,
            seen,
            attributions,
            events,
            tuple(self.intents),
            host=host,
            subjects=units,
            orders=orders,
            started=self.now(self.time - self.started),
        )
        outcome = step(self.state, inputs, POLICY)
        check_invariants(inputs, outcome, given)
        self.state = outcome.state
        self.carry_out(outcome, given["act"], now)

    def carry_out(self, outcome: Outcome, act: str, now: Instant) -> None:
        for wish in outcome.wishes:
            if any(intent.open and intent.rung == wish.rung for intent in self.intents):
                continue
            number = 1 + len(self.intents)
            self.intents.append(
                Intent(
                    f"a{wish.incident}-{number}", *wish.rung[:3], wish.action, wish.target, wish.workload, wish.gpu,
                    IntentState.PLANNED, now, now, heat=wish.heat,
                )
            )  # fmt: skip
        if act == "nothing":
            return
        state = IntentState(act)
        wanted = {wish.rung: wish for wish in outcome.wishes}
        for index, intent in enumerate(self.intents):
            if intent.open and intent.action in REVERSIBLE:
                self.intents[index] = self._changed(intent, wanted.get(intent.rung), state, now)
            elif intent.open:
                sent = now if state in (IntentState.VERIFIED, IntentState.FAILED) else None
                self.intents[index] = replace(intent, state=state, changed=now, sent=sent)

    def _changed(self, intent: Intent, wish: Optional[Wish], state: IntentState, now: Instant) -> Intent:
        """A change is in force while it is wanted in earnest; the dice decide whether it can be had at all."""
        if wish is None or (wish.observe and intent.applied is not None):
            return replace(intent, state=IntentState.UNDONE, changed=now)
        if intent.applied is None and state is not IntentState.VERIFIED:
            return replace(intent, state=state, changed=now)
        if wish.observe:
            return replace(intent, state=IntentState.WOULD_HAVE, changed=now)
        return replace(intent, state=IntentState.APPLIED, applied=intent.applied or now, level=wish.level)


def check_invariants(inputs: Inputs, outcome: Outcome, given: dict[str, Any]) -> None:
    """S2-S4, S9, S11 on one outcome."""
    now = inputs.now
    stops = [wish for wish in outcome.wishes if wish.action == "stop"]
    under_way = {intent.rung for intent in inputs.intents if intent.open}
    fresh = inputs.report.state is DriverState.OK and 0 <= now.boottime_s - inputs.report.taken.boottime_s <= STALE_S  # type: ignore[union-attr]
    new = [wish for wish in stops if wish.rung not in under_way]
    for wish in stops:
        assert matches(wish.target, ("train@*.service",)), "S2: configured"
        assert wish.target != "train@holy.service", "S2: protected"
        assert refusal(wish.target) is None, "S2: a leaf unit"
    assert not [wish for wish in new if now.boottime_s < 120 and not wish.observe], "S4: grace of the host"
    if inputs.started is not None and (now.since(inputs.started) or 0) < 30:
        assert not new, "S4: grace of the daemon"
    if inputs.orders.hands_off(now):
        assert all(wish.observe for wish in outcome.wishes if wish.action != "snapshot"), "S6: disarmed"
    for wish in outcome.wishes:
        assert wish.target not in {intent.target for intent in inputs.intents if intent.id in inputs.orders.vetoed} or (
            wish.rung in {intent.rung for intent in inputs.intents if intent.sent is not None}
            or wish.action != "stop"
            or wish.rung not in under_way
        ), "vetoed"
    throttled = [wish.target for wish in outcome.wishes if wish.action == "throttle"]
    assert len(throttled) == len(set(throttled)), "one throttle a card"
    for wish in outcome.wishes:
        if wish.action == "throttle":
            assert 1 <= wish.level <= POLICY.throttle.levels
    for wish in new:
        if wish.rule == MEMORY.name:
            assert usable("host.memory_pressure_full", given["pressure"]) is not None, "S3: a usable reading"
            assert given["list_lag"] <= 15, "S11: units were read just now"
            continue
        assert given["unknown"] is None and given["list_lag"] <= ATTRIBUTION_S and given["confirmed"], "S11"
        assert (wish.target, "unit") in {(unit, kind) for unit, _, kind in given["owners"]}, "S11: on the card now"
        alert = outcome.state.alerts[f"{wish.rule}|gpu|{wish.gpu}"]
        assert alert.phase == "firing"
        if wish.rule == HOT.name:
            judged = alert.sample
            assert (now.since(judged) or 0) >= 0, "S3: never of the future"
            if fresh and judged == inputs.report.taken:
                index = 0 if wish.gpu == uuid(0) else 1
                assert usable("gpu.shutdown_margin", given["margins"][index]) is not None, "S3: a usable reading"
        else:
            assert alert.actionable, "S9: not on an old event alone"
    targets = [wish.target for wish in stops]
    assert len(targets) == len(set(targets)), "S4: one in flight a target"
    new = [wish for wish in new if wish.gpu]
    opened = {intent.gpu for intent in inputs.intents if intent.open and intent.action == "stop"}
    assert not [wish for wish in new if wish.gpu in opened], "S4: one in flight a card"
    check_budget(inputs, new)
    for alert in outcome.state.alerts.values():
        assert alert.phase in ("pending", "firing")
        if alert.fired is None:
            assert alert.phase == "pending"
    for incident in outcome.state.incidents.values():
        assert incident.causes and incident.closed is None
    names = [name for incident in outcome.state.incidents.values() for name in incident.notified]
    assert len(names) >= len(outcome.transitions) - len(outcome.changed)


def check_budget(inputs: Inputs, new: list[Any]) -> None:
    """S4: what is wanted anew fits into the budget, counted over what was really sent."""
    recent = [
        intent
        for intent in inputs.intents
        if intent.action == "stop" and intent.sent is not None and 0 <= (inputs.now.since(intent.sent) or 1e9) < 600
    ]
    for wish in new:
        if wish.heat:
            assert not [intent for intent in recent if intent.heat and intent.gpu == wish.gpu], (
                "one stop for heat a card"
            )
        else:
            others = {intent.target for intent in recent if not intent.heat} - {wish.target}
            assert len(others) < 3, "three ladders in ten minutes"


CALM: dict[str, Any] = {
    "wait": 1.0, "clock": 0.0, "reboot": False, "restart": False, "state": DriverState.OK, "lag": 0.0,
    "margins": [value(40), value(40)], "lost": None, "owners": [("train@a.service", 4, "unit")], "list_lag": 0.0,
    "confirmed": True, "unknown": None, "xid": None, "busy": True, "pressure": value(0.0), "orders": "none",
    "act": "nothing",
}  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(LOOK, min_size=5, max_size=40))
def test_no_history_breaks_the_promises(looks: list[dict[str, Any]]) -> None:
    world = World()
    for given_look in looks:
        world.look(given_look)
    # The throttle is let go and every ladder ends once the world is calm.
    calm = {**CALM, "act": "verified"}
    for _ in range(100):
        world.look(calm)
    assert not [intent for intent in world.intents if intent.open], "every ladder ends, every change is put back"
    events = {rule.name for rule in RULES if rule.event is not None}
    assert not [each for each in world.state.alerts.values() if each.rule not in events]


def test_the_checker_itself_objects() -> None:
    """A policy that stopped a protected unit would be caught."""
    world = World()
    world.started -= 100
    story = {**CALM, "margins": [value(1), value(40)]}
    for _ in range(7):
        world.look(story)
    planned = next(intent for intent in world.intents if intent.action == "stop")
    outcome = step(world.state, Inputs(world.now(), report(world.now(), gpu(0))), POLICY)
    wish = replace(_wish(planned), target="train@holy.service")
    with pytest.raises(AssertionError, match="S2"):
        check_invariants(Inputs(world.now(), report(world.now(), gpu(0))), replace(outcome, wishes=(wish,)), story)


def _wish(intent: Intent) -> Any:
    return Wish(*intent.rung, intent.workload, intent.gpu, intent.created, False)
