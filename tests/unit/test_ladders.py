"""What a ladder wants, rung by rung: throttle, hold, stop; deeper and lighter; and everything that holds it back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest

from gpuwatch.actions import reversible
from gpuwatch.actions.changes import PowerLimit
from gpuwatch.actions.effect import Effect
from gpuwatch.model import reason
from gpuwatch.model.instant import Instant
from gpuwatch.model.intent import Intent, IntentState
from gpuwatch.model.orders import Order, Orders
from gpuwatch.model.rule import Clear, Rule, Severity, Step, Threshold
from gpuwatch.model.settings import Grace, Mode, Settings, Throttle
from gpuwatch.model.wish import Wish
from gpuwatch.policy.state import Inputs, Outcome
from tests.fakes.story import HOT, LOST, NO_GRACE, TRAINING, Story, at, attribution, gpu, owner, report, uuid

UNIT = "train@llama.service"
WARM = Rule(
    "gpu-hot",
    Severity.WARNING,
    metric="gpu.slowdown_margin",
    threshold=Threshold(below=3),
    for_s=3,
    clear=Clear(Threshold(above=8), 10),
    ladder=(Step(("throttle",)), Step(("stop",), after_s=60)),
)
SETTINGS = Settings(mode=Mode.ENFORCE, workloads=(TRAINING,), rules=(WARM, LOST), grace=NO_GRACE)


class Host:
    """The policy with hands that always work: a wish is carried out in the step after it was first wanted."""

    def __init__(self, settings: Settings = SETTINGS, supported: bool = True, start: float = 1000.0) -> None:
        self.story = Story(settings)
        self.intents: list[Intent] = []
        self.watts, self.supported, self.time, self.held = 700.0, supported, start, False
        self.asked: dict[str, Optional[float]] = {}
        self.limit = PowerLimit(None)  # type: ignore[arg-type]  # only its arithmetic
        self.outcome = Outcome(self.story.state)
        self.orders = Orders()
        self.started: Optional[Instant] = None

    def run(self, seconds: int, temperature: float, **more: Any) -> Outcome:
        """Some seconds alike."""
        for _ in range(seconds):
            self.second(temperature, **more)
        return self.outcome

    def second(self, temperature: float, owners: Any = None, **more: Any) -> None:
        """One second; the wishes of the last one are carried out first."""
        self.time += 1
        now = at(self.time)
        who = (owner(),) if owners is None else owners
        card = gpu(0, temperature, **{"power_limit": self.watts, "utilisation": 98, **more})
        given = Inputs(
            now,
            report(now, card),
            (attribution(now, *who),),
            intents=tuple(self.intents),
            orders=self.orders,
            started=self.started,
        )
        self.outcome = self.story.step(given)
        self._carry_out(self.outcome.wishes, now)

    def _carry_out(self, wishes: tuple[Wish, ...], now: Instant) -> None:
        wanted = {wish.rung: wish for wish in wishes}
        served = {intent.rung for intent in self.intents if intent.open}
        for index, intent in enumerate(self.intents):
            self.intents[index] = self._moved(intent, wanted.get(intent.rung), now)
        for wish in wishes:
            if wish.rung not in served:
                name = f"a{wish.incident}-{len(self.intents) + 1}"
                self.intents.append(
                    Intent(name, *wish.rung, wish.workload, wish.gpu, IntentState.PLANNED, now, now, heat=wish.heat)
                )

    def _moved(self, intent: Intent, wish: Optional[Wish], now: Instant) -> Intent:
        if not intent.open:
            return intent
        if intent.action == "stop":
            if wish is None:
                return replace(intent, state=IntentState.WITHDRAWN, changed=now)
            state = IntentState.WOULD_HAVE if wish.observe else IntentState.VERIFIED
            return replace(intent, state=state, changed=now, sent=None if wish.observe else now)
        problem = "" if self.supported else "unsupported"
        power = intent.action == "throttle"
        held = reversible.Held(now, self.watts if power else float(self.held), problem, after=self.asked.get(intent.id))
        before = self.watts if intent.before is None else intent.before
        target = None if wish is None else self.limit.target(before, wish.level, self.story.settings.throttle)
        moved, effect = reversible.advance(
            intent, reversible.Standing(now, wish, held, target=target if power else 1.0)
        )
        value = {Effect.SET: moved.value, Effect.RESTORE: moved.before}.get(effect) if effect is not None else None
        self.asked[intent.id] = value
        if value is not None and power:
            self.watts = value
        elif value is not None:
            self.held = bool(value)
        return moved

    def kinds(self) -> list[tuple[str, str]]:
        """What was begun, oldest first."""
        return [(intent.action, intent.state.value) for intent in self.intents]

    def reasons(self) -> set[str]:
        """Every reason that an alert has given."""
        return {decision.code for outcome in self.story.outcomes for decision in outcome.decisions}


def test_throttle_comes_first_and_a_stop_when_it_does_not_help() -> None:
    host = Host()
    host.run(10, 88)
    assert host.kinds() == [("throttle", "applied")]
    assert host.watts == 595
    host.run(120, 88)
    assert ("stop", "verified") in host.kinds()
    assert host.watts < 595, "deeper while it still heats"


def test_a_throttle_gets_time_to_show_before_the_next_rung() -> None:
    host = Host(replace(SETTINGS, rules=(replace(WARM, ladder=(Step(("throttle",)), Step(("stop",)))),)))
    host.run(30, 88)
    assert [action for action, _ in host.kinds()] == ["throttle"]
    assert reason.SETTLING in host.reasons()
    host.run(15, 88)
    assert ("stop", "verified") in host.kinds()


def test_a_throttle_that_helps_ends_the_climb_and_is_lifted_in_steps() -> None:
    host = Host()
    host.run(10, 88)
    host.run(40, 88)
    deep = host.watts
    host.run(50, 84)  # neither hot nor cool
    assert host.watts == deep
    assert [action for action, _ in host.kinds()] == ["throttle"]
    host.run(9, 75)
    assert host.watts == deep
    host.run(5, 75)
    assert host.watts == 700
    assert host.kinds() == [("throttle", "undone")]


def test_it_gets_lighter_as_it_cools_and_not_again_when_that_was_too_early() -> None:
    rule = replace(WARM, clear=Clear(Threshold(above=8), 200), ladder=(Step(("throttle",)),))
    host = Host(replace(SETTINGS, rules=(rule,)))
    host.run(80, 88)
    deep = host.watts
    host.run(40, 75)
    lighter = host.watts
    assert lighter > deep
    host.run(25, 88)
    assert host.watts == deep
    host.run(100, 75)
    assert host.watts == deep, "one that was given back too early is kept until it is over"


def test_it_is_never_deeper_than_the_lowest_level() -> None:
    rule = replace(WARM, ladder=(Step(("throttle",)),))
    host = Host(replace(SETTINGS, rules=(rule,), throttle=Throttle(step=0.25, lowest=0.5)))
    host.run(400, 88)
    (intent,) = host.intents
    assert intent.level == 2


def test_an_oscillating_sensor_does_not_flap() -> None:
    host = Host()
    host.run(10, 88)
    for _ in range(60):
        host.run(2, 85)
        host.run(2, 87)
    throttles = [intent for intent in host.intents if intent.action == "throttle"]
    assert len(throttles) == 1
    assert host.story.told().count("firing") == 1
    assert "resolved" not in host.story.told()


def test_a_card_that_can_not_be_throttled_goes_on_to_the_next_rung() -> None:
    host = Host(supported=False)
    host.run(75, 88)
    assert host.kinds() == [("throttle", "failed"), ("stop", "verified")]


@pytest.mark.parametrize(
    ("owners", "why", "goes_on"),
    [
        ((owner(), owner("nginx.service", 77)), reason.SHARED, True),
        ((), reason.NOBODY_THERE, False),
        ((owner("nginx.service", 77),), reason.NO_WORKLOAD, False),
    ],
)
def test_a_card_is_throttled_only_when_it_is_all_ours(owners: Any, why: str, goes_on: bool) -> None:
    host = Host()
    host.run(75, 88, owners=owners)
    assert why in host.reasons()
    assert ("stop" in [action for action, _ in host.kinds()]) is goes_on
    assert host.watts == 700


def test_a_card_that_the_admin_named_is_throttled_whoever_is_on_it() -> None:
    host = Host(replace(SETTINGS, throttle=Throttle(gpus=("GPU-*",))))
    host.run(10, 88, owners=(owner(), owner("nginx.service", 77)))
    assert host.watts == 595


def test_allow_narrows_each_action() -> None:
    host = Host(replace(SETTINGS, workloads=(replace(TRAINING, allow=("stop",)),)))
    host.run(75, 88)
    assert host.kinds() == [("stop", "verified")]
    host = Host(replace(SETTINGS, workloads=(replace(TRAINING, allow=("throttle",)),)))
    host.run(150, 88)
    assert [action for action, _ in host.kinds()] == ["throttle"]
    assert reason.NOT_ALLOWED in host.reasons()


def test_two_rules_share_one_throttle() -> None:
    other = replace(WARM, name="also-hot", threshold=Threshold(below=5), ladder=(Step(("throttle",)),))
    host = Host(replace(SETTINGS, rules=(WARM, other)))
    host.run(10, 88)
    assert host.kinds() == [("throttle", "applied")]
    host.run(20, 80.5)  # one of them is over
    host.run(20, 70)
    assert host.watts == 700


def test_a_missing_reading_lifts_nothing() -> None:
    host = Host()
    host.run(10, 88)
    host.run(100, 88, slowdown_margin=255.0)
    assert host.watts == 595
    assert [action for action, _ in host.kinds()] == ["throttle"], "S3: and it climbs no further"
    assert reason.NO_READING in host.reasons()


def test_worse_climbs_only_while_it_gets_no_better() -> None:
    rule = replace(WARM, threshold=Threshold(below=10), ladder=(Step(("throttle",)), Step(("stop",), 20, worse=True)))
    host = Host(replace(SETTINGS, rules=(rule,)))
    host.run(10, 88)
    host.run(60, 84)
    assert [action for action, _ in host.kinds()] == ["throttle"]
    assert reason.NOT_WORSE in host.reasons()
    host.run(60, 88)
    assert ("stop", "verified") in host.kinds()


def test_keep_goes_on_after_it_has_cleared() -> None:
    host = Host(replace(SETTINGS, rules=(replace(WARM, keep_s=30),)))
    host.run(10, 88)
    host.run(25, 70)
    assert host.watts == 595
    host.run(20, 70)
    assert host.watts == 700


def test_what_comes_back_soon_is_kept_longer_each_time() -> None:
    host = Host(replace(SETTINGS, rules=(replace(WARM, keep_s=30, ladder=(Step(("throttle",)),)),)))
    kept = []
    for _ in range(3):
        host.run(10, 88)
        for second in range(300):
            host.second(70)
            if host.watts == 700:
                kept.append(second)
                break
    assert kept[1] >= kept[0] + 30 and kept[2] >= kept[1] + 60


def test_what_was_stopped_is_held_until_it_is_over() -> None:
    rule = replace(HOT, ladder=(Step(("stop", "hold")),))
    host = Host(replace(SETTINGS, rules=(rule,)))
    host.run(12, 94)
    assert host.kinds() == [("stop", "verified"), ("hold", "applied")]
    host.run(65, 40, owners=())
    assert host.kinds()[1] == ("hold", "undone")


def test_a_person_releases_a_hold_for_good() -> None:
    rule = replace(HOT, ladder=(Step(("stop", "hold")),))
    host = Host(replace(SETTINGS, rules=(rule,)))
    host.run(12, 94)
    host.orders = Orders(released=(host.intents[1].id,))
    host.run(10, 94)
    assert [each for each in host.kinds() if each[0] == "hold"] == [("hold", "undone")]


def test_a_veto_stops_what_is_not_sent_and_the_rung() -> None:
    host = Host(replace(SETTINGS, rules=(HOT,)))
    host.run(6, 94)
    (planned,) = host.intents
    host.orders = Orders(vetoed=(planned.id,))
    host.run(30, 94)
    assert host.kinds() == [("stop", "withdrawn")]
    assert reason.VETOED in host.reasons()


def test_nothing_destructive_right_after_a_start_of_the_daemon_or_the_host() -> None:
    settings = replace(SETTINGS, rules=(HOT,), grace=Grace(30, 120))
    host = Host(settings)
    host.started = at(1000)
    host.run(25, 94)
    assert host.intents == [] and reason.GRACE in host.reasons()
    host.run(10, 94)
    assert host.kinds() == [("stop", "verified")]
    young = Host(settings, start=50)
    young.run(60, 94)
    assert young.intents == []
    young.run(20, 94)
    assert young.kinds() == [("stop", "verified")]


@pytest.mark.parametrize("word", ["disarmed", "maintenance"])
def test_hands_off_means_would_have_and_puts_back(word: str) -> None:
    host = Host()
    host.run(10, 88)
    assert host.watts == 595
    host.orders = Orders(**{word: Order(at(0))})  # type: ignore[arg-type]
    host.run(5, 88)
    assert host.watts == 700
    host.run(150, 88)
    assert all(state != "verified" for _, state in host.kinds())


def test_a_lost_card_does_nothing_else() -> None:
    host = Host(replace(SETTINGS, rules=(WARM, LOST)))
    host.run(10, 88)
    host.time += 1
    now = at(host.time)
    lost = gpu(0, lost="GPU is lost")
    outcome = host.story.step(Inputs(now, report(now, lost), intents=tuple(host.intents)))
    assert outcome.state.alerts[f"gpu-hot|gpu|{uuid(0)}"].reason == reason.INHIBITED


def test_a_hot_idle_card_is_suspect_and_not_touched() -> None:
    host = Host(replace(SETTINGS, rules=(HOT,)))
    host.run(40, 94, power=60.0, utilisation=0)  # the later word counts
    assert host.intents == []
    assert reason.SUSPECT in host.reasons()
    (incident,) = host.story.state.incidents.values()
    assert "power" in str(incident.causes[0].facts["witnesses_against"])
