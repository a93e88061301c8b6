"""The daemon's own log: who finds what by which field."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.daemon.account import DEBUG, INFO, NOTICE, WARNING, log_decisions, log_intents
from gpuwatch.model import reason
from gpuwatch.model.incident import Subject
from gpuwatch.model.intent import IntentState
from gpuwatch.model.wish import Decision
from tests.conftest import refuse
from tests.lab.journal_files import entry, why_no_journal_remote, write_journal
from tests.unit.alert_cases import DOUBT, HEAT, UUID, XID_13, at, hold, incident, stop, throttle

GPU = Subject("gpu", UUID)
OWNED = {**XID_13, "user": "wang", "unit": "train@a.service"}


class Heard:
    """Implements protocols.Log."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, str, dict[str, str]]] = []

    def write(self, priority: int, message: str, fields: Any = None) -> None:
        """See protocols.Log."""
        self.entries.append((priority, message, dict(fields or {})))


def decided(code: str, facts: Any, rule: str = "xid-application", subject: Subject = GPU) -> Decision:
    return Decision(code, rule, subject, "GPU 3", facts)


def decision(*decisions: Decision, **more: Any) -> tuple[int, str, dict[str, str]]:
    log = Heard()
    log_decisions(log, decisions, **more)
    (only,) = log.entries
    return only


def step(*after: Any, **more: Any) -> list[tuple[int, str, dict[str, str]]]:
    log = Heard()
    log_intents(log, (), after, **more)
    return log.entries


def test_owner_of_a_program_is_told_in_the_log_of_its_unit() -> None:
    _, message, fields = decision(decided(reason.FIRED, OWNED))
    assert fields["OBJECT_SYSTEMD_UNIT"] == "train@a.service"
    assert "xid 13" in message and "user wang" in message
    assert message.endswith("A program made the graphics engine fail.")


@pytest.mark.parametrize(
    "facts",
    [
        {**XID_13, "unit": "trainer-7"},  # a container
        {"metric": "gpu.slowdown_margin", "unit": "C"},
        {"metric": "gpu.slowdown_margin", "unit": "x.service"},
        {**XID_13, "unit": "a@all\n.service"},
        XID_13,
    ],
)
def test_what_is_no_unit_is_in_no_units_log(facts: Any) -> None:
    assert "OBJECT_SYSTEMD_UNIT" not in decision(decided(reason.FIRED, facts))[2]


def test_what_was_judged_of_a_unit_is_in_its_log() -> None:
    about = decided(reason.FIRED, {"metric": "unit.memory_used_ratio"}, subject=Subject("unit", "train@a.service"))
    fields = decision(about)[2]
    assert fields["OBJECT_SYSTEMD_UNIT"] == "train@a.service"
    assert "GPU_UUID" not in fields


@pytest.mark.parametrize(
    "code, priority",
    [
        (reason.PENDING, DEBUG),
        (reason.SETTLING, DEBUG),
        (reason.CLEARED, INFO),
        (reason.GRACE, INFO),
        (reason.FIRED, NOTICE),
        (reason.NO_WORKLOAD, NOTICE),
        (reason.BUDGET_SPENT, WARNING),
        (reason.SUSPECT, WARNING),
    ],
)
def test_priority_follows_the_meaning(code: str, priority: int) -> None:
    assert decision(decided(code, HEAT))[0] == priority


def test_what_people_are_told_is_a_warning_with_its_incident() -> None:
    priority, _, fields = decision(decided(reason.FIRED, HEAT), incidents=[incident(HEAT)])
    assert (priority, fields["GPUWATCH_INCIDENT"]) == (WARNING, "17")


def test_a_reason_is_told_in_words_with_what_it_rests_on() -> None:
    _, message, fields = decision(decided(reason.SUSPECT, DOUBT, "gpu-hot"))
    assert "suspect (suspect hot_while_idle" in message and "witnesses_against power=68 utilisation=0" in message
    assert message.endswith(": the reading contradicts itself")
    assert fields["GPUWATCH_REASON"] == "suspect"


@pytest.mark.parametrize("make", [stop, hold])
def test_a_stop_or_hold_is_in_the_log_of_its_unit(make: Any) -> None:
    ((priority, message, fields),) = step(make(IntentState.SENT, "sent"))
    assert fields["OBJECT_SYSTEMD_UNIT"] == "train@llama.service"
    assert priority == WARNING
    assert message.endswith("train@llama.service: sent, for rule gpu-critical, incident 17")


def test_a_throttle_tells_each_unit_on_the_card_and_the_watts() -> None:
    on = throttle(IntentState.APPLIED, "deeper", level=2, value=490.0)
    told = step(on, units_on={UUID: ("train@a.service", "train@b.service"), "GPU-other": ("c.service",)})
    assert [fields["OBJECT_SYSTEMD_UNIT"] for _, _, fields in told] == ["train@a.service", "train@b.service"]
    assert {fields["GPUWATCH_LEVEL"] for _, _, fields in told} == {"2"}
    assert "applied (deeper): power limit 700 -> 490 W, level 2" in told[0][1]


def test_a_throttle_of_a_card_whose_users_nobody_knows_is_told_once() -> None:
    ((_, _, fields),) = step(throttle(IntentState.SENT, "sent"))
    assert "OBJECT_SYSTEMD_UNIT" not in fields


def test_observe_mode_is_said() -> None:
    ((_, message, _),) = step(stop(IntentState.PLANNED, observe=True))
    assert "observe mode: nothing is touched" in message


def test_a_step_is_told_once() -> None:
    log, before = Heard(), stop(IntentState.PLANNED)
    log_intents(log, [before], [before])
    assert log.entries == []
    log_intents(log, [before], [replace(before, state=IntentState.PRESERVED, changed=at("13:47:13"))])
    assert len(log.entries) == 1


def test_journalctl_shows_a_unit_what_root_wrote_about_it(tmp_path: Path) -> None:
    refuse(why_no_journal_remote())
    path = tmp_path / "system.journal"
    log = Heard()
    log_decisions(log, [decided(reason.FIRED, OWNED)])
    log_intents(log, (), [stop(IntentState.SENT, "sent", target="train@a.service")])
    _, message, fields = log.entries[0]
    written = [{**each, "MESSAGE": text, "_UID": "0"} for _, text, each in log.entries]
    written.append({**fields, "MESSAGE": "forged", "_UID": "1000"})
    write_journal(path, [entry(each, 10**15 + n, 10**9 + n, "b" * 32) for n, each in enumerate(written)])
    shown = subprocess.run(
        ["journalctl", "--file", str(path), "-u", "train@a.service", "-o", "cat", "--no-pager"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.splitlines() == [message, log.entries[1][1]]
