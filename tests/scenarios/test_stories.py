"""Written stories, played to the shipped rules (tests/scenarios/stories, `gpuwatch simulate`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from gpuwatch.alerts.channels.options import channel_types
from gpuwatch.config.scenario import ScenarioReader
from gpuwatch.daemon.rehearsal import Kept
from gpuwatch.daemon.stories import Account, play
from gpuwatch.daemon.verdict import failures
from gpuwatch.model.settings import Settings
from gpuwatch.simulation.scenario import Scenario

STORIES = sorted((Path(__file__).parent / "stories").glob("**/*.yaml"))
NAMES = [path.stem for path in STORIES]
READER = ScenarioReader(channel_types())


@cache
def read(path: Path) -> tuple[Scenario, Settings]:
    """The story; read once."""
    return READER.read(path.read_bytes(), str(path.relative_to(Path(__file__).parents[2])))


@cache
def played(path: Path) -> tuple[Account, list[str]]:
    """What came of it, and what a store would have lost of it; played once."""
    last, lost = Kept(), []

    def compare(kept: Kept) -> None:
        nonlocal last
        if (kept.policy, kept.intents) != (last.policy, last.intents):
            found, last = kept.through_the_store(), Kept(kept.policy, kept.intents)
            if (found.policy, found.intents) != (kept.policy, kept.intents):
                lost.append(f"{found} is not {kept}")

    told = play(*read(path), after_each=compare)
    return told, lost


def account(path: Path) -> Account:
    """What came of it."""
    return played(path)[0]


@pytest.mark.parametrize("path", STORIES, ids=NAMES)
def test_it_goes_as_the_story_expects(path: Path) -> None:
    found = failures(read(path)[0], account(path).entries)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("path", STORIES[::7], ids=NAMES[::7])
def test_the_same_story_is_the_same_account(path: Path) -> None:
    assert play(*read(path)) == account(path)


@pytest.mark.parametrize("path", STORIES, ids=NAMES)
def test_what_is_stored_is_all_that_decides(path: Path) -> None:
    """Killed again and again, at other moments in each story: the next process goes on as if nothing had been. (Not in
    each cycle: an answer of the driver takes two.)"""
    killed = play(*read(path), killed_every=4 + STORIES.index(path) % 4)
    assert _said(killed) == _said(account(path))


@pytest.mark.parametrize("path", STORIES, ids=NAMES)
def test_after_any_cycle_the_next_process_finds_what_this_one_knew(path: Path) -> None:
    """Whatever moment a process dies at: what the rules and the actions are decided by comes back the same."""
    assert not played(path)[1]


def _said(told: Account) -> list[tuple[object, ...]]:
    """Whatever the moment: an action that finds its bundle on disk after a restart is a cycle later."""
    return sorted(each.timeless for each in told.entries)
