"""Patterns of a site: what is accepted, what is refused and how that is said, and that none can take long."""

from __future__ import annotations

import time
from typing import Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.catalog.user_patterns import MOST_PATTERNS, UserPatterns, Written, compile_user, pattern_problem
from gpuwatch.model.errors import Problem

PRINTED = {"_TRANSPORT": "stdout", "_PID": "41872", "_SYSTEMD_UNIT": "train@3.service"}


def written(**values: object) -> dict[str, Written]:
    return {
        key: Written(value, "conf.d/50-site.yaml", 3 + number, 5) for number, (key, value) in enumerate(values.items())
    }


def compiled(**values: object) -> tuple[UserPatterns, tuple[Problem, ...]]:
    return compile_user([written(**values)])


def read(patterns: UserPatterns, message: str, **fields: str) -> Optional[dict[str, object]]:
    facts = patterns.read({**PRINTED, **fields, "MESSAGE": message})
    return None if facts is None else dict(facts)


def test_a_pattern_with_groups() -> None:
    own, problems = compiled(
        name="loader-stall",
        literal="data loader waits",
        pattern=r"data loader waits since (?P<seconds>[0-9]{1,6}) s on (?P<host>\S{1,64})",
        severity="warning",
        meaning="The data loader can't keep up.",
        units=["train@*.service"],
    )
    assert problems == ()
    facts = read(own, "12:00 [rank3] data loader waits since 42 s on gpu-07 now")
    assert facts == {
        "kind": "log_match",
        "pattern": "loader-stall",
        "alert_severity": "warning",
        "meaning": "The data loader can't keep up.",
        "seconds": 42,
        "host": "gpu-07",
        "rank": 3,
        "source_trust": "user",
        "unit": "train@3.service",
        "pid": 41872,
    }
    assert read(own, "data loader waits since 42 s on gpu-07", _SYSTEMD_UNIT="other.service") is None
    assert read(own, "data loader waits for ever") is None


def test_a_literal_alone() -> None:
    own, problems = compiled(name="x", literal="a+b (c)")
    assert problems == () and read(own, "so a+b (c)!") and not read(own, "so aab (c)!")


@pytest.mark.parametrize(
    "values, key, words",
    [
        ({"literal": "abcd"}, "", "needs 'name'"),
        ({"name": "x"}, "", "needs 'literal'"),
        ({"name": "x y", "literal": "abcd"}, "name", "letters, digits"),
        ({"name": "x", "literal": "ab"}, "literal", "at least 4"),
        ({"name": "x", "literal": "    a"}, "literal", "at least 4"),
        ({"name": "x", "literal": "ab\ncd"}, "literal", "one line"),
        ({"name": "x", "literal": "a" * 500}, "literal", "at most"),
        ({"name": "x", "literal": ["abcd"]}, "literal", "must be a text"),
        ({"name": "x", "literal": "abcd", "severity": "loud"}, "severity", "info, warning, critical"),
        ({"name": "x", "literal": "abcd", "units": "a.service"}, "units", "must be a list"),
        ({"name": "x", "literal": "abcd", "colour": "red"}, "colour", "no such setting"),
        ({"name": "x", "literal": "abcd", "pattern": "abcd ("}, "pattern", "is no regular expression"),
        ({"name": "x", "literal": "abcd", "pattern": "abc"}, "pattern", "must begin with the literal"),
        ({"name": "x", "literal": "abcd", "pattern": ".*abcd"}, "pattern", "must begin with the literal"),
        ({"name": "x", "literal": "abcd", "pattern": "(abcd)?"}, "pattern", "must begin with the literal"),
        ({"name": "x", "literal": "abcd", "pattern": "abcd|x"}, "pattern", "must begin with the literal"),
        ({"name": "x", "literal": "abcd", "pattern": "(?i)abcd"}, "pattern", "flags"),
        ({"name": "x", "literal": "abcd", "pattern": "abcd(?P<unit>x)"}, "pattern", "group 'unit' is no field"),
        ({"name": "x", "literal": "abcd", "pattern": "abcd(?P<pid>x)"}, "pattern", "group 'pid' is no field"),
        ({"name": "x", "literal": "abcd", "pattern": "abcd(?P<kind>x)"}, "pattern", "group 'kind' is no field"),
        ({"name": "x", "literal": "abcd", "pattern": "abcd(a+)+$"}, "pattern", "itself repeats"),
        ({"name": "x", "literal": "abcd", "pattern": "abcd(?:a|b|ab)*$"}, "pattern", "itself repeats"),
        ({"name": "x", "literal": "abcd", "pattern": "abcd(?:(?:a){0,9}){0,9}$"}, "pattern", "itself repeats"),
        ({"name": "x", "literal": "abcd", "pattern": "abcd.*.*.*x"}, "pattern", "too long on a line"),
        ({"name": "x", "literal": "abcd", "pattern": "abcd" + "a?" * 30 + "a" * 30}, "pattern", "too long on a line"),
        ({"name": "x", "literal": "abcd", "pattern": "abcd" + "(?:a|aa)" * 30 + "x"}, "pattern", "too long on a line"),
        ({"name": "x", "literal": "abcd", "pattern": r"abcd(x)\1"}, "pattern", "refer back"),
        ({"name": "x", "literal": "abcd", "pattern": "abcd(?=x)"}, "pattern", "look ahead"),
        ({"name": "x", "literal": "abcd", "pattern": "abcd" + "x" * 2000}, "pattern", "at most"),
    ],
)
def test_refused(values: dict[str, object], key: str, words: str) -> None:
    own, problems = compile_user([written(**values)])
    assert own.patterns == ()
    (problem,) = problems
    path = f"patterns[0].{key}: " if key else "patterns[0]: "
    assert problem.text.startswith(path) and words in problem.text
    expected = 3 + list(values).index(key) if key in values else 3
    assert (problem.file, problem.line, problem.column) == ("conf.d/50-site.yaml", expected, 5)


def test_all_problems_at_once_and_the_good_ones_stay() -> None:
    own, problems = compile_user(
        [written(name="a", literal="x"), written(name="b", literal="good one"), written(name="b", literal="good two")]
    )
    assert [pattern.name for pattern in own.patterns] == ["b"] and own.patterns[0].literal == "good one"
    assert [problem.text.split(":")[0] for problem in problems] == ["patterns[0].literal", "patterns[2].name"]


def test_not_without_end() -> None:
    rows = [written(name=f"n{number}", literal=f"literal {number}") for number in range(MOST_PATTERNS + 5)]
    own, problems = compile_user(rows)
    assert len(own.patterns) == MOST_PATTERNS and len(problems) == 5


PIECES = st.lists(
    st.sampled_from(
        [
            "a",
            "b",
            ".",
            "a*",
            ".*",
            "a+",
            ".+?",
            "[ab]{0,20}",
            "(?:a|b)",
            "(?:ab)?",
            "(a{1,3}){2}",
            r"\S{1,9}",
            "$",
            "(?P<code>a)",
        ]
    ),
    max_size=10,
).map("".join)


@given(PIECES)
@settings(max_examples=150, deadline=None)
def test_what_is_accepted_is_never_slow(rest: str) -> None:
    """The worst lines that we can think of, for whatever the check lets through."""
    pattern = "lit:" + rest
    if pattern_problem(pattern, "lit:"):
        return
    own, problems = compiled(name="x", literal="lit:", pattern=pattern)
    assert problems == ()
    for filler in ("a", "ab", "b", "aab "):
        began = time.process_time()
        own.read({**PRINTED, "MESSAGE": "lit:" * 3 + filler * 400_000 + "!"})
        assert time.process_time() - began < 0.25


@given(st.text(max_size=40))
@settings(max_examples=300, deadline=None)
def test_no_pattern_raises(text: str) -> None:
    compile_user([written(name="x", literal="abcd", pattern="abcd" + text)])
    compile_user([written(name=text, literal=text, severity=text, meaning=text)])
