"""Patterns and Xid classes of a site: from the files to the events, what is refused, and what is only warned about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from gpuwatch.alerts.channels.options import channel_types
from gpuwatch.catalog import judge
from gpuwatch.catalog.user_patterns import MOST_PATTERNS, UserPatterns, compiled
from gpuwatch.cli.main import main
from gpuwatch.config.events import EVENT_KINDS, SITE_PATTERN
from gpuwatch.config.load import load
from gpuwatch.model.errors import ConfigError
from gpuwatch.model.event import Event, Scalar
from gpuwatch.model.instant import Instant
from gpuwatch.model.rule import EventMatch, Severity
from gpuwatch.model.settings import Settings, SitePattern, XidClass
from gpuwatch.sources.journal import JournalSource
from gpuwatch.system.protocols import JournalBatch, JournalEntry
from tests.unit.config_files import loaded, problems, write

STALL = """\
patterns:
  - name: loader-stall
    literal: data loader waits
    pattern: 'data loader waits since (?P<seconds>[0-9]{1,6}) s'
    severity: warning
    meaning: The data loader can't keep up.
    units: ["train@*.service"]
"""
PATTERN = "patterns:\n  - name: p\n    literal: abcd\n"
RULE = "rules:\n  - name: r\n    severity: warning\n"
CLASS = "xid_classes:\n  - xid: 31\n    class: hardware\n    reason: risers\n"
BOOT = "b" * 32
NOW = Instant(BOOT, 1000.0, 1_764_500_000.0)
PRINTED = {"_TRANSPORT": "stdout", "_PID": "41872", "_SYSTEMD_UNIT": "train@3.service"}
KERNEL = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel"}


def events(own: UserPatterns, message: str, **fields: str) -> tuple[Event, ...]:
    """What a line becomes."""
    source = JournalSource()
    source.configure(None, own)
    entry = JournalEntry("c", 1_764_499_999_000_000, 999_000_000, BOOT, {**fields, "MESSAGE": message})
    return source.events(JournalBatch((entry,), "c"), NOW)


def test_every_setting_arrives(tmp_path: Path) -> None:
    found = loaded(tmp_path, STALL + CLASS + "  - {xid: 62, class: ignore, reason: known}\n")
    assert found.settings.patterns == (
        SitePattern(
            name="loader-stall",
            literal="data loader waits",
            pattern="data loader waits since (?P<seconds>[0-9]{1,6}) s",
            severity=Severity.WARNING,
            meaning="The data loader can't keep up.",
            units=("train@*.service",),
        ),
    )
    assert found.settings.xid_classes == (XidClass(31, "hardware", "risers"), XidClass(62, "ignore", "known"))
    assert found.settings.class_overrides() == {31: "hardware", 62: "ignore"}
    assert found.origins["patterns[loader-stall]"] == f"{tmp_path}/gpuwatch.yaml:2"
    assert found.origins["xid_classes[31]"] == f"{tmp_path}/gpuwatch.yaml:9"


def test_the_literal_alone_is_enough(tmp_path: Path) -> None:
    assert loaded(tmp_path, PATTERN).settings.patterns == (SitePattern("p", "abcd"),)


# What comes of them -----------------------------------------------------------------------------


def test_a_line_that_fits_becomes_an_event(tmp_path: Path) -> None:
    own = compiled(loaded(tmp_path, STALL).settings)
    (event,) = events(own, "12:00 data loader waits since 42 s", **PRINTED)
    assert (event.kind, event.uuid, event.fields["pattern"]) == (SITE_PATTERN, None, "loader-stall")
    assert (event.fields["seconds"], event.fields["alert_severity"]) == (42, "warning")
    assert event.fields["source_trust"] == "user"
    assert not events(own, "data loader waits", **PRINTED)
    assert not events(own, "data loader waits since 42 s", **{**PRINTED, "_SYSTEMD_UNIT": "other.service"})
    assert not events(compiled(Settings()), "data loader waits since 42 s", **PRINTED)


def test_without_units_every_line_that_is_read_is_compared(tmp_path: Path) -> None:
    own = compiled(loaded(tmp_path, PATTERN).settings)
    for fields in (PRINTED, KERNEL, {**PRINTED, "CONTAINER_NAME": "trainer-1", "_SYSTEMD_UNIT": "docker.service"}):
        (event,) = events(own, "my abcd", **fields)
        assert (event.kind, event.fields["source_trust"]) == (SITE_PATTERN, "user")


def test_what_gpuwatch_knows_itself_comes_first(tmp_path: Path) -> None:
    own = compiled(loaded(tmp_path, "patterns: [{name: p, literal: 'NVRM: Xid'}]\n").settings)
    (event,) = events(own, "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.", **KERNEL)
    assert event.kind == "xid"


@pytest.mark.parametrize(
    "facts, overrides, expected",
    [
        ({"xid": 31}, {}, ("application", Severity.INFO)),
        ({"xid": 31}, {31: "hardware"}, ("hardware", Severity.CRITICAL)),
        ({"xid": 31}, {31: "ignore"}, ("ignore", Severity.INFO)),
        ({"xid": 13}, {31: "hardware"}, ("application", Severity.INFO)),
        ({"xid": 92}, {92: "hardware"}, ("hardware", Severity.WARNING)),  # its own class: as the table has it
        ({"xid": 999}, {999: "driver"}, ("driver", Severity.WARNING)),
        ({"xid": 74}, {74: "informational"}, ("informational", Severity.INFO)),
        ({"xid": 74, "fatal": True}, {74: "application"}, ("application", Severity.INFO)),
        ({"xid": 31}, {31: "link"}, ("link", Severity.WARNING)),
        ({"xid": 31, "fatal": True}, {31: "link"}, ("link", Severity.CRITICAL)),  # K7: the line comes first
        ({"xid": 154, "recovery_to": 2}, {154: "ignore"}, ("host_restart", Severity.CRITICAL)),  # K10
        ({"xid": None}, {31: "hardware"}, ("unknown", Severity.WARNING)),
    ],
)
def test_a_class_of_the_site(facts: dict[str, Scalar], overrides: dict[int, str], expected: tuple[str, str]) -> None:
    assert judge.judge({"kind": "xid", **facts}, overrides) == expected
    assert judge.judge({"kind": "sxid", "sxid": 31}, overrides) == judge.judge({"kind": "sxid", "sxid": 31})


# Several files ----------------------------------------------------------------------------------


def test_entries_merge_by_name_and_number(tmp_path: Path) -> None:
    main_file = PATTERN + "  - {name: q, literal: efgh}\n" + CLASS + "  - {xid: 32, class: link, reason: x}\n"
    site = "patterns:\n  - {name: p, literal: other}\n  - {name: q, enabled: false}\n"
    site += "xid_classes:\n  - {xid: 31, class: driver, reason: y}\n  - {xid: 32, enabled: false}\n"
    found = loaded(tmp_path, main_file, **{"10": site})
    assert found.settings.patterns == (SitePattern("p", "other"),)
    assert found.settings.class_overrides() == {31: "driver"}
    assert found.origins["patterns[p]"] == f"{tmp_path}/conf.d/10.yaml:2"


def test_a_rule_of_one_file_may_name_a_pattern_of_another(tmp_path: Path) -> None:
    rule = RULE + "    event: {kind: log_match, patterns: [p]}\n"
    found = loaded(tmp_path, rule, **{"10": PATTERN})
    assert found.settings.rules[-1].event == EventMatch("log_match", patterns=("p",))
    assert found.warnings == ()
    # in a file that can't be read it may well be
    assert [each.split(" ")[0] for each in problems(tmp_path, rule, **{"10": "rules: [\n"})] == ["conf.d/10.yaml:2:1:"]


# Mistakes ---------------------------------------------------------------------------------------

SLOW = "could take too long on a line made for it"
NESTED = "repeats something that itself repeats or has alternatives; write it out"
MISTAKES = [
    ("patterns: abcd\n", "1:11: patterns: expected a list of patterns ('- name: ...'), not a single value"),
    ("patterns: [abcd]\n", "1:12: patterns[0]: expected a pattern ('name: ...' and its settings), not a single value"),
    ("patterns:\n  - literal: abcd\n", "2:5: patterns[0]: 'name' is missing, e.g. name: loader-stall"),
    ("patterns:\n  - name: p\n", "2:5: patterns[0]: 'literal' is missing, e.g. literal: data loader waits"),
    ("patterns: [{name: p q, literal: abcd}]\n", "1:19: patterns[0].name: 'p q' is not a name of letters"),
    ("patterns: [{name: p, literal: abc}]\n", "1:31: patterns[0].literal: must have at least 4 characters"),
    ("patterns: [{name: p, literal: '   a'}]\n", "1:31: patterns[0].literal: must have at least 4 characters"),
    (f"patterns: [{{name: p, literal: {'a' * 201}}}]\n", "1:31: patterns[0].literal: must have at most 200 charac"),
    ('patterns: [{name: p, literal: "ab\\ncd"}]\n', "1:31: patterns[0].literal: must be one line"),
    ("patterns: [{name: p, literal: [abcd]}]\n", "1:31: patterns[0].literal: expected a text that is in every such"),
    (PATTERN + "    severity: loud\n", "4:15: patterns[0].severity: 'loud' is not one of info, warning, critical"),
    (PATTERN + "    units: a.service\n", "4:12: patterns[0].units: expected a list: [a.service], not a single value"),
    (PATTERN + "    units: []\n", "4:12: patterns[0].units: is empty"),
    (PATTERN + "    units: ['*.service']\n", "4:13: patterns[0].units[0]: '*.service' names every unit of the host"),
    (PATTERN + "    units: [a.slice]\n", "4:13: patterns[0].units[0]: 'a.slice' is a slice, and nothing prints as one"),
    (PATTERN + "    units: [train]\n", "4:13: patterns[0].units[0]: 'train' has no unit suffix and would fit nothing"),
    (PATTERN + "    units: [a b]\n", "4:13: patterns[0].units[0]: 'a b' is not a unit name such as"),
    (PATTERN + "    meaning: ' '\n", "4:14: patterns[0].meaning: ' ' is not one line of at most 200 characters"),
    (PATTERN + "    color: red\n", "4:5: patterns[0]: no setting 'color' here"),
    (PATTERN + "    regex: abcd\n", "4:5: patterns[0]: 'regex' is written as pattern"),
    (PATTERN + "    ladder: []\n", "4:5: patterns[0]: 'ladder' belongs to a rule: event: {kind: log_match, patterns"),
    (PATTERN + "  - {name: p, literal: efgh}\n", "4:5: patterns[1]: there is a pattern 'p' in this file already (line"),
    ("patterns: [{name: p, enabled: false}]\n", "1:12: patterns: there is no pattern 'p' to turn off"),
    # regular expressions
    (PATTERN + "    pattern: 'abcd ('\n", "4:14: patterns[0].pattern: is no regular expression: missing )"),
    (
        PATTERN + "    pattern: 'abcd [[a]'\n",
        "4:14: patterns[0].pattern: is no regular expression: Possible nested set",
    ),
    (PATTERN + "    pattern: '.*abcd'\n", "4:14: patterns[0].pattern: must begin with the literal: 'abcd...'"),
    (PATTERN + "    pattern: '(?i)abcd'\n", "4:14: patterns[0].pattern: has flags; write it without (?...)"),
    (PATTERN + "    pattern: 'abcd(?P<unit>x)'\n", "4:14: patterns[0].pattern: group 'unit' is no field; there is"),
    (PATTERN + "    pattern: 'abcd(a+)+$'\n", f"4:14: patterns[0].pattern: {NESTED}"),
    (PATTERN + "    pattern: 'abcd(?:a|b|ab)*$'\n", f"4:14: patterns[0].pattern: {NESTED}"),
    (PATTERN + "    pattern: 'abcd.*.*.*x'\n", f"4:14: patterns[0].pattern: {SLOW}"),
    (PATTERN + f"    pattern: 'abcd{'a?' * 30}{'a' * 30}'\n", f"4:14: patterns[0].pattern: {SLOW}"),
    (PATTERN + "    pattern: 'abcd(x)\\1'\n", "4:14: patterns[0].pattern: may not refer back or look ahead or behind"),
    (PATTERN + f"    pattern: 'abcd{'x' * 1000}'\n", "4:14: patterns[0].pattern: must have at most 1000 characters"),
    # rules about them
    (RULE + "    event: {kind: log_match, patterns: []}\n", "4:40: rules[0].event.patterns: is empty"),
    (
        PATTERN + RULE + "    event: {kind: log_match, patterns: [pp]}\n",
        "5:5: rules[r].event.patterns: there is no pattern 'pp'",
    ),
    (
        RULE + "    event: {kind: xid, patterns: [p]}\n",
        "4:34: rules[0].event.patterns: an event of kind xid has no patterns",
    ),
    (
        PATTERN + RULE + "    event: log_match\n    ladder: [{do: [snapshot]}, {do: [stop]}]\n",
        "8:13: rules[0].ladder: can't stop anything: anybody can write a line that makes a log_match",
    ),
    # classes
    (
        "xid_classes: {31: hardware}\n",
        "1:14: xid_classes: expected a list of class changes ('- xid: ...'), not a group",
    ),
    ("xid_classes: [{xid: 31, class: hardware}]\n", "1:15: xid_classes[0]: 'reason' is missing"),
    ("xid_classes: [{class: hardware, reason: x}]\n", "1:15: xid_classes[0]: 'xid' is missing, e.g. xid: 31"),
    ("xid_classes: [{xid: x, class: link, reason: x}]\n", "1:21: xid_classes[0].xid: 'x' is not a whole number from 1"),
    ("xid_classes: [{xid: 31, class: links, reason: x}]\n", "1:32: xid_classes[0].class: 'links' is not one of"),
    ("xid_classes: [{xid: 31, class: host, reason: x}]\n", "1:32: xid_classes[0].class: 'host' is not one of"),
    (
        "xid_classes: [{xid: 31, class: link, reason: }]\n",
        "1:46: xid_classes[0].reason: has no value; expected one line",
    ),
    (
        "xid_classes: [{xid: 154, class: link, reason: x}]\n",
        "1:21: xid_classes[0].xid: an Xid 154 names what the driver",
    ),
    (
        CLASS + "  - {xid: 031, class: link, reason: x}\n",
        "5:5: xid_classes[1]: there is a class change '31' in this file",
    ),
    ("xid_classes: [{xid: 31, enabled: false}]\n", "1:15: xid_classes: there is no class change '31' to turn off"),
    (CLASS + "    severity: info\n", "5:5: xid_classes[0]: 'severity' is a rule's to say"),
]


@pytest.mark.parametrize("text, expected", MISTAKES, ids=[expected[:60] for _, expected in MISTAKES])
def test_a_mistake_is_told_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    found = problems(tmp_path, text)
    assert len(found) == 1, found
    assert found[0].startswith(f"gpuwatch.yaml:{expected}")


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    text = PATTERN + "    pattern: 'abcd(a+)+'\n    units: [a.slice]\n" + "  - {name: q, literal: x, severity: y}\n"
    found = problems(tmp_path, text, **{"10": PATTERN + "    pattern: x\n"})
    assert [each.split(": ")[0] for each in found] == [
        "gpuwatch.yaml:4:14",
        "gpuwatch.yaml:5:13",
        "gpuwatch.yaml:6:24",
        "gpuwatch.yaml:6:37",
        "conf.d/10.yaml:4:14",
    ]


def test_not_without_end(tmp_path: Path) -> None:
    many = "patterns:\n" + "".join(f"  - {{name: n{n}, literal: literal {n}}}\n" for n in range(MOST_PATTERNS + 1))
    (problem,) = problems(tmp_path, many)
    assert problem.startswith(f"gpuwatch.yaml:{MOST_PATTERNS + 2}:5: patterns[{MOST_PATTERNS}].name: there are more")
    assert problems(tmp_path, many, **{"10": "patterns: [{name: n7, enabled: false}]\n"}) == []


@pytest.mark.parametrize("kind", [kind for kind in EVENT_KINDS if judge.is_user_kind(kind)])
def test_s10_no_rule_stops_for_what_anybody_can_write(tmp_path: Path, kind: str) -> None:
    rule = f"rules: [{{name: r, severity: critical, event: {kind}, ladder: [{{do: [stop]}}]}}]\n"
    (problem,) = problems(tmp_path, PATTERN + rule)
    assert "rules[0].ladder: can't stop anything: anybody can write" in problem


def test_a_key_in_a_pattern_is_not_repeated(tmp_path: Path) -> None:
    key = "693a91f6-7a3c-4bc4-97a0-0ec2ffa5aaaa"
    for text in (f"patterns: [{{name: p, literal: '{key}', pattern: x}}]\n", PATTERN + f"    pattern: '{key}'\n"):
        (problem,) = problems(tmp_path, text)
        assert problem.endswith("patterns[0].pattern: can't be used")


@pytest.mark.parametrize(
    "text, expected",
    [
        (STALL, "2:5: patterns[loader-stall]: has severity warning, and no rule is about it: it is listed, and nobody"),
        (RULE + "    event: log_match\n", "2:5: rules[r].event: is about this site's patterns, and there is none"),
        (
            "patterns: [{name: p, literal: abcd, enabled: false}]\n"
            + RULE
            + "    event: {kind: log_match, patterns: [p]}\n",
            "3:5: rules[r].event.patterns: pattern 'p' is turned off",
        ),
        (
            PATTERN + RULE + "    event: log_match\n    ladder: [{do: [snapshot]}]\n",
            "8:13: rules[0].ladder: is never climbed: anybody can write a line that makes a log_match",
        ),
    ],
)
def test_what_is_allowed_and_probably_not_meant(tmp_path: Path, text: str, expected: str) -> None:
    (warning,) = loaded(tmp_path, text).warnings
    assert str(warning).startswith(f"{tmp_path}/gpuwatch.yaml:{expected}")


@pytest.mark.parametrize("event", ["log_match", "{kind: log_match, patterns: [loader-stall]}"])
def test_a_rule_about_a_pattern_tells_people(tmp_path: Path, event: str) -> None:
    assert loaded(tmp_path, STALL + RULE + f"    event: {event}\n").warnings == ()


# Shown and compiled -----------------------------------------------------------------------------


def test_what_show_prints_is_the_same_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = "  - {name: odd, literal: '  # a: \"b\" ', pattern: '  \\# a: \"b\" \\S{1,9}'}\n"
    rule = RULE + "    event: {kind: log_match, patterns: [loader-stall, odd]}\n"
    path = write(tmp_path, STALL + odd + CLASS + rule)
    assert main(["config", "show", "--config", path]) == 0
    shown = capsys.readouterr().out
    assert "- name: loader-stall" in shown and f"# {path}:2" in shown and f"# {path}:10" in shown
    (tmp_path / "again").mkdir()
    again = load(write(tmp_path / "again", shown), channel_types()).settings
    first = load(path, channel_types()).settings
    assert (again.patterns, again.xid_classes) == (first.patterns, first.xid_classes)
    assert again.rules[-1].event == first.rules[-1].event
    assert main(["config", "check", "--config", path]) == 0
    assert " rules, 2 patterns of this site, workloads: none" in capsys.readouterr().out


def test_what_was_not_checked_is_not_compiled() -> None:
    with pytest.raises(ConfigError, match="repeats something"):
        compiled(Settings(patterns=(SitePattern("p", "abcd", "abcd(a+)+"),)))


_TEXTS = st.one_of(st.text(max_size=12), st.sampled_from(["abcd", "abcd.*", "abcd(?P<code>x)", "a.service", "info"]))
_ENTRIES = st.fixed_dictionaries(
    {"name": _TEXTS, "literal": _TEXTS},
    optional={"pattern": _TEXTS, "severity": _TEXTS, "meaning": _TEXTS, "units": st.lists(_TEXTS, max_size=2)},
)


@profile(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=st.lists(_ENTRIES, max_size=3))
def test_whatever_is_accepted_can_be_compiled(tmp_path: Path, entries: list[dict[str, object]]) -> None:
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(json.dumps({"patterns": entries}), encoding="utf-8")
    try:
        settings = load(str(path), channel_types(), defaults=b"").settings
    except ConfigError:
        return
    assert len(compiled(settings).patterns) == len(settings.patterns)
