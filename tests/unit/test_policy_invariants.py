"""The policy over random histories: whatever is read, missed, restarted or set back, its promises hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model.codec import decode, encode
from gpuwatch.model.event import Event
from gpuwatch.model.gpu import DriverState
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import FINAL, Intent, IntentState
from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value
from gpuwatch.model.units import matches, refusal
from gpuwatch.model.wish import Wish
from gpuwatch.policy.conditions import usable
from gpuwatch.policy.state import ATTRIBUTION_S, STALE_S, Inputs, Outcome, PolicyState
from gpuwatch.policy.step import step
from tests.fakes.story import HOT, SETTINGS, XID, attribution, gpu, owner, report, uuid, xid

RULES = (HOT, replace(XID, ladder=HOT.ladder, name="site-xid"), *SETTINGS.rules[1:])
POLICY = replace(SETTINGS, rules=RULES, protect=("train@holy.service",))
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
        "act": st.sampled_from(["nothing", "verified", "refused", "failed", "would_have", "withdrawn"]),
    }
)


class World:
    """Feeds the policy, carries its wishes out in the crudest way, and checks each outcome."""

    def __init__(self) -> None:
        self.state = PolicyState()
        self.boot, self.time, self.utc = 0, 1000.0, 1_796_000_000.0
        self.intents: list[Intent] = []
        self.last_margin: dict[str, list[tuple[Instant, Reading]]] = {}

    def now(self, ago: float = 0.0) -> Instant:
        return Instant(f"{self.boot:032x}", self.time - ago, self.utc - ago)

    def look(self, given: dict[str, Any]) -> None:
        self.time += given["wait"]
        self.utc += given["wait"] + given["clock"]
        if given["reboot"]:
            self.boot, self.time = self.boot + 1, 20.0
            self.intents = []
        if given["restart"]:
            self.state = decode(PolicyState, encode(self.state))
        now, taken = self.now(), self.now(given["lag"])
        cards = [
            gpu(index, 60, lost=given["lost"] if index == 1 else None, shutdown_margin=margin)
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
        inputs = Inputs(now, seen, attributions, events, tuple(self.intents))
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
        for index, intent in enumerate(self.intents):
            if intent.open:
                sent = now if state in (IntentState.VERIFIED, IntentState.FAILED) else None
                self.intents[index] = replace(intent, state=state, changed=now, sent=sent)


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
    for wish in new:
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


@settings(max_examples=150, deadline=None)
@given(st.lists(LOOK, min_size=5, max_size=40))
def test_no_history_breaks_the_promises(looks: list[dict[str, Any]]) -> None:
    world = World()
    for given_look in looks:
        world.look(given_look)
    assert all(intent.state in FINAL or intent.open for intent in world.intents)


def test_the_checker_itself_objects() -> None:
    """A policy that stopped a protected unit would be caught."""
    world = World()
    story = {
        "wait": 1.0, "clock": 0.0, "reboot": False, "restart": False, "state": DriverState.OK, "lag": 0.0,
        "margins": [value(1), value(40)], "lost": None, "owners": [("train@a.service", 4, "unit")], "list_lag": 0.0,
        "confirmed": True, "unknown": None, "xid": None, "act": "nothing",
    }  # fmt: skip
    for _ in range(7):
        world.look(story)
    (planned,) = world.intents
    outcome = step(world.state, Inputs(world.now(), report(world.now(), gpu(0))), POLICY)
    wish = replace(_wish(planned), target="train@holy.service")
    with pytest.raises(AssertionError, match="S2"):
        check_invariants(Inputs(world.now(), report(world.now(), gpu(0))), replace(outcome, wishes=(wish,)), story)


def _wish(intent: Intent) -> Any:
    return Wish(*intent.rung, intent.workload, intent.gpu, intent.created, False)
