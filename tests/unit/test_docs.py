"""README, its Chinese twin, CONTRIBUTING, CHANGELOG and the man page say what the program does."""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.actions import targets
from gpuwatch.alerts.channels.options import channel_types
from gpuwatch.catalog import xid
from gpuwatch.catalog.texts import LANGUAGES, TEXTS
from gpuwatch.catalog.xid import CLASSES
from gpuwatch.cli import check, main, places
from gpuwatch.config.events import EVENT_KINDS
from gpuwatch.config.kinds import duration_text
from gpuwatch.config.limits import limit_shown
from gpuwatch.config.load import load
from gpuwatch.config.root import json_schema
from gpuwatch.config.scenario import ScenarioReader
from gpuwatch.model import reason
from gpuwatch.model.metric import METRICS
from gpuwatch.model.rule import ACTIONS, Rule, Selector, Severity, Threshold
from gpuwatch.policy.plausibility import SUSPECTS, WITNESSES
from gpuwatch.policy.victims import VERDICTS
from gpuwatch.system.holds import HoldFiles

TREE = Path(__file__).resolve().parents[2]
READMES = ("README.md", "README.zh-CN.md")
MARKDOWN = (*READMES, "CONTRIBUTING.md", "CHANGELOG.md")
MAN = "packaging/man/gpuwatch.8"
EVERY = (*MARKDOWN, MAN)
CLONE = ".venv/bin/"  # where the command is in a clone
SHELL_TOOLS = {"systemctl", "apt", "install", "cat", "mkdir", "printf", "journalctl"}


# -- reading documents --------------------------------------------------------------------------


def document(name: str) -> str:
    """A document as text; the man page without roff."""
    text = (TREE / name).read_text(encoding="utf-8")
    return plain(text) if name == MAN else text


def plain(roff: str) -> str:
    """What a reader sees, near enough: no comments, macros and fonts."""
    lines = []
    for line in roff.splitlines():
        if line.startswith('.\\"'):
            continue
        if re.match(r"\.[BI]R |\.[IR]B |\.RI ", line):  # alternating fonts: the parts stand side by side
            line = "".join(shlex.split(line.replace("\\-", "-"))[1:])
        line = re.sub(r"^\.(?:[BI] |SH |TH |TP|PP|RS|RE|nf|fi).{0,0}", "", line)
        lines.append(re.sub(r"\\f[BIRP]", "", line).replace("\\-", "-"))
    return "\n".join(lines)


def man_section(title: str) -> str:
    """The text of one section of the man page."""
    roff = (TREE / MAN).read_text(encoding="utf-8")
    parts = re.split(r"^\.SH ", roff, flags=re.MULTILINE)
    (found,) = [part for part in parts if part.startswith(title + "\n")]
    return plain(found)


def blocks(name: str, kind: str) -> list[str]:
    """The fenced blocks of a kind (sh, yaml, text) in their order."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", document(name), flags=re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[str]:
    """Lines of a block without comments and empty ones."""
    lines = [re.sub(r"(?:^|\s+)# .*$", "", line) for line in block.splitlines()]
    return [line for line in lines if line]


def inline(name: str) -> list[str]:
    """What stands in backticks, outside of blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", document(name), flags=re.MULTILINE | re.DOTALL))


def table(name: str, title: str) -> list[list[str]]:
    """Rows of all tables whose first header cell is `title`, without backticks."""
    rows: list[list[str]] = []
    inside = False
    for line in document(name).splitlines():
        if line.startswith(f"| {title} |"):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
    return rows


# -- the program's own word ---------------------------------------------------------------------


def verb_parser() -> argparse.ArgumentParser:
    """All verbs in one parser, as main() builds them one by one."""
    parser = argparse.ArgumentParser(prog="gpuwatch", add_help=False)
    verbs = parser.add_subparsers(dest="verb")
    for module, _ in main.VERBS.values():
        importlib.import_module(f"gpuwatch.cli.{module}").add_parser(verbs)
    return parser


def leaves(parser: argparse.ArgumentParser, path: str = "gpuwatch") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every full command with its parser."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in inner:
        for name, child in action.choices.items():
            yield from leaves(child, f"{path} {name}")
    if not inner:
        yield path, parser


LEAVES = dict(leaves(verb_parser()))


def reason_codes() -> set[str]:
    """Every code that may stand behind "nothing, because" or an action."""
    own = {value for name, value in vars(reason).items() if name.isupper()}
    return own | set(targets.CODES) | set(VERDICTS)


# Headers of tables in the Chinese README, by those of the English one.
CHINESE = {
    "Setting": "设置",
    "Suspect": "可疑",
    "Witness": "证据",
    "What": "什么",
    "Class": "类别",
    "Part": "部分",
    "Metrics": "指标",
    "Exit code": "退出码",
}
NO_WORDS = {"at", "and", "what", "happens", "in", "the", "order", "of", "time"}  # of the sentences around them


def words_of(name: str, header: str) -> str:
    """The header of a table in a README's own language."""
    return header if name == "README.md" else CHINESE[header]


def options(parser: argparse.ArgumentParser) -> set[str]:
    """Its long options but --help."""
    return {text for action in parser._actions for text in action.option_strings if text.startswith("--")} - {"--help"}


def default_rules(place: Path) -> dict[str, Rule]:
    """The rules that ship."""
    file = place / "gpuwatch.yaml"
    file.write_text("mode: observe\n", encoding="utf-8")
    return {rule.name: rule for rule in load(str(file), channel_types()).settings.rules}


def row_of(rule: Rule) -> list[str]:
    """The cells that a README must have for a rule, but for the last, which is prose."""
    return [rule.name, condition(rule), _for(rule), over(rule), rule.severity.value, does(rule)]


def rule_line(rule: Rule) -> str:
    """The same in a line of the man page."""
    name, begins, for_text, ends, severity, ladder = row_of(rule)
    del name
    held = "" if for_text in ("-", "0s") else f" for {for_text}"
    return f"{begins}{held}; ends {ends}; {severity}; {ladder}."


def condition(rule: Rule) -> str:
    """When it begins."""
    if rule.event is not None:
        match = rule.event
        narrowed = [*match.classes, *map(str, match.codes), *(["fatal"] if match.fatal else []), *match.patterns]
        text = f"{match.kind}: {', '.join(narrowed)}" if narrowed else match.kind
        if match.count > 1:
            text += f", {match.count} in {duration_text(match.within_s)}"
        text += f" of different {match.different}" if match.different else ""
    else:
        assert rule.metric is not None and rule.threshold is not None
        text = f"{rule.metric} {limit_text(rule.metric, rule.threshold)}"
        if rule.change_over_s is not None:
            text = f"{rule.metric} grows {limit_text(rule.metric, rule.threshold)} in {duration_text(rule.change_over_s)}"
    text += f", unless {rule.unless_supported}" if rule.unless_supported else ""
    sides = [f"{name} {', '.join(globs)}" for name, globs in vars(rule.only).items() if globs]
    return f"{text}, only {'; '.join(sides)}" if sides else text


def _for(rule: Rule) -> str:
    return "-" if rule.event is not None else duration_text(rule.for_s)


def over(rule: Rule) -> str:
    """When it ends."""
    if rule.event is not None:
        return "reboot" if rule.quiet_for_s is None else f"quiet {duration_text(rule.quiet_for_s)}"
    assert rule.metric is not None and rule.clear is not None
    text = f"{limit_text(rule.metric, rule.clear.threshold)}, {duration_text(rule.clear.for_s)}"
    return f"{text} + {duration_text(rule.keep_s)}" if rule.keep_s else text


def does(rule: Rule) -> str:
    """Its ladder; without one, whether people hear of it."""
    if not rule.ladder:
        return "log" if rule.severity is Severity.INFO else "tell"
    said = []
    for step in rule.ladder:
        text = ", ".join("evidence" if action == "snapshot" else action for action in step.do)
        after = f"after {duration_text(step.after_s)}" + (", if no better" if step.worse else "")
        said.append(f"{after}: {text}" if step.after_s or step.worse else text)
    return "; ".join(said)


def limit_text(metric: str, threshold: Threshold) -> str:
    """< 3, > 10s"""
    if threshold.below is not None:
        return f"< {limit_shown(METRICS[metric], threshold.below)}"
    assert threshold.above is not None
    return f"> {limit_shown(METRICS[metric], threshold.above)}"


# -- the two READMEs ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sh", "yaml", "yaml story"])
def test_both_readmes_have_the_same_code_blocks(kind: str) -> None:
    english, chinese = ([commands(block) for block in blocks(name, kind)] for name in READMES)
    assert english
    assert english == chinese


def test_both_readmes_have_the_same_sections_and_screens() -> None:
    english, chinese = (re.findall(r"^#+ ", document(name), flags=re.MULTILINE) for name in READMES)
    assert english == chinese
    assert len(blocks(READMES[0], "text")) == len(blocks(READMES[1], "text"))
    assert blocks(READMES[0], "text")[1:] == blocks(READMES[1], "text")[1:]  # status and simulate


def test_both_readmes_name_the_same_commands() -> None:
    begins = ("gpuwatch", "make ", CLONE)
    english, chinese = ({each for each in inline(name) if each.startswith(begins)} for name in READMES)
    assert english == chinese


def test_both_readmes_have_the_same_metric_groups() -> None:
    english, chinese = ([row[0] for row in table(name, words_of(name, "Metrics"))] for name in READMES)
    assert english
    assert english == chinese


@pytest.mark.parametrize("name", READMES)
def test_links_within_a_readme_lead_somewhere(name: str) -> None:
    headings = re.findall(r"^#+ (.*)$", document(name), flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)]+)\)", document(name)):
        if target.startswith("#"):
            assert target[1:] in anchors
        elif not target.startswith("https://"):
            assert (TREE / target).exists()


@pytest.mark.parametrize("name", READMES)
def test_default_rules_are_those_of_the_catalogue(name: str, tmp_path: Path) -> None:
    rows = [row[:6] for row in table(name, "Rule")]
    assert rows == [row_of(rule) for rule in default_rules(tmp_path).values()]


@pytest.mark.parametrize("name", EVERY)
def test_metrics_in_documents_exist(name: str) -> None:
    named = set(re.findall(r"(?<![\w/.-])(?:gpu|host|unit)\.[a-z_0-9]+", document(name)))
    assert named - METRICS.keys() == set()
    assert named or name in ("CONTRIBUTING.md", "CHANGELOG.md")


@pytest.mark.parametrize("name", READMES)
def test_promises_are_complete_and_in_order(name: str) -> None:
    rows = re.findall(r"^\| (S\d+) \|", document(name), flags=re.MULTILINE)
    assert rows == [f"S{number}" for number in range(1, 15)]


@pytest.mark.parametrize("name", READMES)
def test_exit_codes_in_the_readme(name: str) -> None:
    rows: Mapping[str, str] = {row[0]: row[1] for row in table(name, words_of(name, "Exit code"))}
    own = {str(code) for code in (main.OK, main.FAILURE, main.USAGE, main.BAD_CONFIG)}
    probe = f"check: {', '.join(map(str, check.CODES.values()))}"
    assert set(rows) == own | {probe}
    assert rows[probe] == ", ".join(check.CODES)


@pytest.mark.parametrize("name", READMES)
def test_configuration_in_the_readme_is_accepted(name: str, tmp_path: Path) -> None:
    (tmp_path / "gpuwatch.yaml").write_text("mode: observe\n", encoding="utf-8")
    (tmp_path / "conf.d").mkdir()
    for number, block in enumerate(blocks(name, "yaml")):
        (tmp_path / "conf.d" / f"{number}.yaml").write_text(block, encoding="utf-8")
    settings = load(str(tmp_path / "gpuwatch.yaml"), channel_types()).settings
    assert [workload.mode and workload.mode.value for workload in settings.workloads] == ["enforce"]
    assert f"{{file: {settings.channels[0].key.file}}}" in blocks(name, "yaml")[0]
    assert [rule.name for rule in settings.rules if not rule.enabled] == ["xid-link"]
    assert [len(each) for each in (settings.patterns, settings.xid_classes)] == [1, 1]
    rules = {rule.name: rule for rule in settings.rules}
    assert rules["gpu-hot"].only.models == ("*H100*",)
    assert does(rules["gpu-hot"]) == "throttle; after 2m, if no better: stop, hold"
    assert condition(rules["replays"]) == "gpu.pcie_replays grows > 100 in 10m"
    assert condition(rules["fails-often"]) == "unit_failed, 5 in 1h, only units train@*.service"
    assert {"data-full", "loader-waits"} <= rules.keys()


@pytest.mark.parametrize("file", sorted((TREE / "config/conf.d").glob("*.example")), ids=lambda file: file.name)
def test_the_examples_of_conf_d_are_accepted(file: Path, tmp_path: Path) -> None:
    """As copies, beside a workload of that name, as their README says to use them."""
    (tmp_path / "gpuwatch.yaml").write_text('workloads: [{name: training, units: ["train@*.service"]}]\n', "utf-8")
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / file.name.removesuffix(".example")).write_bytes(file.read_bytes())
    before = default_rules(tmp_path / "conf.d")
    loaded = load(str(tmp_path / "gpuwatch.yaml"), channel_types())
    assert {rule.name: rule for rule in loaded.settings.rules} != before


@pytest.mark.parametrize("name", READMES)
def test_the_settings_of_a_rule_are_all_described(name: str) -> None:
    cells = [re.sub(r"\bwith\b|\bor\b|[加或]|,", " ", row[0]).split() for row in table(name, words_of(name, "Setting"))]
    known = set(json_schema(channel_types())["properties"]["rules"]["items"]["properties"])
    assert {word for cell in cells for word in cell} == known


@pytest.mark.parametrize("name", READMES)
def test_what_the_readme_says_about_steps_and_selectors_is_complete(name: str) -> None:
    rows = {row[0]: set(re.findall(r"[a-z_]+", row[1])) for row in table(name, words_of(name, "Setting"))}
    assert {each.name for each in fields(Selector)} <= rows["only"]
    assert {"do", "after", "worse", *ACTIONS} <= rows["ladder"]
    assert {"kind", "count", "within", *(word for kind in EVENT_KINDS.values() for word in kind.fields)} <= rows["event"]


@pytest.mark.parametrize("name", READMES)
def test_reasons_for_doubt_and_witnesses_are_all_described(name: str) -> None:
    suspects, witnesses = (table(name, words_of(name, word)) for word in ("Suspect", "Witness"))
    assert [row[0] for row in suspects] == list(SUSPECTS)
    assert [word for row in witnesses for word in row[0].split(", ")] == list(WITNESSES)


@pytest.mark.parametrize("name", READMES)
def test_reason_codes_in_the_readme_are_ones_that_the_program_gives(name: str) -> None:
    rows = table(name, words_of(name, "What"))
    named = {code for row in rows if len(row) == 2 and row[1] for code in row[1].split(", ")}
    assert len(named) > 10
    assert named - reason_codes() == set()


@pytest.mark.parametrize("name", READMES)
def test_xid_families_are_those_of_the_table(name: str, tmp_path: Path) -> None:
    rules = default_rules(tmp_path)
    rows = table(name, words_of(name, "Class"))
    assert {klass for row in rows for klass in row[0].split(", ")} == set(CLASSES)
    for classes, numbers, rule, ends in rows:
        assert {xid.lookup(int(number)).klass for number in numbers.split(", ")} == set(classes.split(", "))
        mine = [each for each in rules.values() if each.event is not None and classes in each.event.classes]
        first = next((each for each in mine if each.event is not None and each.event.count == 1), None)
        if first is None:
            assert ends == "-"
        else:
            assert (rule, ends) == (first.name, over(first))


@pytest.mark.parametrize("name", READMES)
def test_the_story_of_the_readme_goes_as_it_says(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (story,) = blocks(name, "yaml story")
    (tmp_path / "hot-card.yaml").write_text(story, encoding="utf-8")
    assert main.main(["simulate", str(tmp_path / "hot-card.yaml")]) == main.OK
    assert capsys.readouterr().out == blocks(name, "text")[2]


@pytest.mark.parametrize("name", READMES)
def test_the_parts_of_a_story_are_all_described(name: str) -> None:
    rows = {word: row[1] for row in table(name, words_of(name, "Part")) for word in row[0].split(", ")}
    schema = ScenarioReader(channel_types()).schema()
    assert list(schema["required"]) == ["story"]
    assert rows.keys() == schema["properties"].keys()
    for part in ("timeline", "expect"):
        known = set(schema["properties"][part]["items"]["properties"])
        assert set(re.findall(r"[a-z_]{2,}", re.sub(r"[^:：]*[:：]|, \.\.\.", "", rows[part], count=1))) - known <= NO_WORDS
    assert set(schema["properties"]["host"]["properties"]) <= set(re.findall(r"[a-z_]+", rows["host"]))


@pytest.mark.parametrize("name", READMES)
def test_drop_ins_are_the_ones_that_are_looked_for(name: str) -> None:
    """What the shell of the admin writes: printf makes % of %%."""
    written = {
        where: text.replace("%%", "%").replace("\\n", "\n")
        for block in blocks(name, "sh")
        for text, where in re.findall(r"^printf '(.*)' > (\S+)$", block, flags=re.MULTILINE)
    }
    hold = written["/etc/systemd/system/train@.service.d/gpuwatch-hold.conf"]
    looked_for = HoldFiles(f"{places.RUN_DIR}/hold").path("%n")
    assert hold == f"[Unit]\nConditionPathExists=!{looked_for}\n"
    throttle = written["/etc/systemd/system/gpuwatch.service.d/throttle.conf"]
    assert throttle == "[Service]\nCapabilityBoundingSet=CAP_SYS_ADMIN\n"


def test_the_unit_lacks_the_capability_that_the_documents_say_it_lacks() -> None:
    unit = (TREE / "systemd/gpuwatch.service").read_text(encoding="utf-8")
    (bounding,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, flags=re.MULTILINE)
    assert "CAP_SYS_ADMIN" not in bounding


@pytest.mark.parametrize("name, language", [("README.md", "en"), ("README.zh-CN.md", "zh")])
def test_phone_message_is_made_of_todays_texts(name: str, language: str) -> None:
    """Its lines are what the catalogue's templates give; an old screen shows when a text has changed."""
    which = LANGUAGES.index(language)
    forms = [pair[which] for key, pair in TEXTS.items() if not key.startswith(("tag.", "title.", "suffix."))]
    # A template with next to no words of its own would match any line.
    telling = [form for form in forms if len(re.sub(r"\{\w+\}|\W", "", form)) >= 2]
    one = "|".join(re.sub(r"\\{\w+\\}", ".{1,60}?", re.escape(form)) for form in telling)
    title, *lines = blocks(name, "text")[0].splitlines()
    assert title.startswith(f"SIMULATED {TEXTS['tag.critical'][which]}")
    assert [line for line in lines if not re.fullmatch(f"(?:{one}){{1,3}}", line)] == []


def test_status_screen_has_todays_columns() -> None:
    source = (TREE / "gpuwatch/cli/status.py").read_text(encoding="utf-8")
    (header,) = re.findall(r"header = (\(.*\))", source)
    lines = blocks("README.md", "text")[1].splitlines()
    assert re.split(r"\s{2,}", lines[2]) == list(ast.literal_eval(header))


# -- commands and options -----------------------------------------------------------------------


@pytest.mark.parametrize("name", [*READMES, MAN])
def test_every_command_is_documented(name: str) -> None:
    text = document(name)
    for verb in main.VERBS:
        assert f"gpuwatch {verb}" in text, verb
    if name == MAN:
        synopsis = man_section("SYNOPSIS")
        assert [command for command in LEAVES if f"{command}" not in synopsis] == []


def test_man_page_has_every_option_of_every_command_and_no_other() -> None:
    synopsis = man_section("SYNOPSIS").splitlines()
    for command, parser in LEAVES.items():
        (line,) = [line for line in synopsis if re.match(rf"{command}(?: |$)", line)]
        assert set(re.findall(r"--[a-z-]+", line)) == options(parser), command


@pytest.mark.parametrize("name", EVERY)
def test_commands_in_documents_are_ones_that_the_program_takes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the code blocks and those in backticks; the man page's examples."""
    lines = [line for kind in ("sh",) for block in blocks(name, kind) for line in commands(block)] + inline(name)
    if name == MAN:
        lines = man_section("EXAMPLES").splitlines()
    lines = [part.strip().removeprefix(CLONE) for line in lines for part in re.split(r" && | > ", line)]
    found = [line for line in lines if re.match(r"gpuwatch [a-z]", line)]
    if name in (*READMES, MAN):
        assert found
    for line in found:
        words = shlex.split(line.replace("NUMBER", "17"))[1:]
        complete = any(command == f"gpuwatch {' '.join(words[:count])}" for command in LEAVES for count in (1, 2))
        if not complete and len(words) == 1 and words[0] in main.VERBS:
            continue  # a verb named without its own verb
        try:
            verb_parser().parse_args(words)
        except SystemExit:
            pytest.fail(f"{name}: {line}: {capsys.readouterr().err}")


@pytest.mark.parametrize("name", READMES)
def test_code_blocks_use_nothing_else(name: str) -> None:
    tools = {line.split()[0] for block in blocks(name, "sh") for line in commands(block)}
    assert tools - SHELL_TOOLS == {"gpuwatch", "make"}


@pytest.mark.parametrize("name", EVERY)
def test_make_targets_exist(name: str) -> None:
    makefile = (TREE / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    used = set(re.findall(r"(?:`|^ {4})make ([a-z]+)", document(name), flags=re.MULTILINE))
    used |= {line.split()[1] for block in blocks(name, "sh") for line in commands(block) if line.startswith("make ")}
    assert used <= targets


@pytest.mark.parametrize("name", EVERY)
def test_nothing_that_reloads_the_service_manager_is_advised(name: str) -> None:
    """S13: enable and disable only with --no-reload; edit and daemon-reload only where they are warned of."""
    advised = [line for block in blocks(name, "sh") for line in commands(block)]
    advised += [each for each in inline(name) if " " in each and each != "systemctl daemon-reload"]
    for line in advised:
        if re.match(r"systemctl (?:enable|disable) .", line):
            assert "--no-reload" in line, line
        assert "daemon-reload" not in line, line
    assert not any("systemctl edit" in line for block in blocks(name, "sh") for line in commands(block))


# -- the man page -------------------------------------------------------------------------------


def test_man_page_has_its_sections() -> None:
    roff = (TREE / MAN).read_text(encoding="utf-8")
    wanted = ("SYNOPSIS", "EXIT STATUS", "SIGNALS", "FILES", "ENVIRONMENT", "SECURITY", "CONTAINERS")
    sections = re.findall(r"^\.SH (.*)$", roff, flags=re.MULTILINE)
    assert [title for title in wanted if title not in sections] == []
    assert f'"gpuwatch {gpuwatch.__version__}"' in roff


@pytest.mark.parametrize(
    "title, words",
    [
        ("METRICS", {name: metric.text for name, metric in METRICS.items()}),
        ("EVENTS", {name: kind.text for name, kind in EVENT_KINDS.items()}),
    ],
)
def test_the_man_page_has_all_that_a_rule_can_name(title: str, words: Mapping[str, str]) -> None:
    lines = man_section(title).splitlines()
    heads = {line.split(" (")[0]: after for line, after in zip(lines, lines[1:]) if line.split(" (")[0] in words}
    assert heads == {name: f"{text[:1].upper()}{text[1:]}." for name, text in words.items()}
    if title == "METRICS":
        slow = {name for name, metric in METRICS.items() if metric.every_s != 1}
        assert {line.split(" ")[0] for line in lines if re.search(r"\d s\)$", line)} == slow


def test_the_man_page_has_every_default_rule(tmp_path: Path) -> None:
    lines = man_section("RULES").splitlines()
    rules = default_rules(tmp_path)
    heads = {line: after for line, after in zip(lines, lines[1:]) if line in rules}
    assert heads == {name: rule_line(rule) for name, rule in rules.items()}


def test_the_man_page_has_every_reason_code_in_the_words_of_the_messages() -> None:
    lines = man_section("REASONS").splitlines()
    heads = {line: after for line, after in zip(lines, lines[1:]) if line in reason_codes()}
    assert heads.keys() == reason_codes()
    for code, said in heads.items():
        text = next((TEXTS[key][0] for key in (f"reason.{code}", f"verdict.{code}") if key in TEXTS), said)
        assert said == f"{text[:1].upper()}{text[1:].rstrip('.')}."


def test_exit_codes_in_the_man_page() -> None:
    section = man_section("EXIT STATUS")
    numbers = {int(number) for number in re.findall(r"^(\d+)$", section, flags=re.MULTILINE)}
    assert numbers == {main.OK, main.FAILURE, main.USAGE, main.BAD_CONFIG, 130}
    assert ", ".join(f"{code} {word}" for word, code in check.CODES.items()) in section


@pytest.mark.parametrize("section", ["ENVIRONMENT", "JOURNAL FIELDS"])
def test_names_in_the_man_page_are_in_the_program(section: str) -> None:
    program = "".join(path.read_text(encoding="utf-8") for path in sorted((TREE / "gpuwatch").rglob("*.py")))
    names = set(re.findall(r"\b(?:[A-Z]{2,}_[A-Z_]+|[a-z]+_proxy)\b", man_section(section)))
    assert names
    assert {name for name in names if f'"{name}"' not in program} == set()


def test_journal_fields_are_complete() -> None:
    source = (TREE / "gpuwatch/daemon/account.py").read_text(encoding="utf-8")
    fields = set(re.findall(r'"(GPU[A-Z]*_[A-Z]+)"', source))
    assert fields == set(re.findall(r"\bGPU[A-Z]*_[A-Z]+\b", man_section("JOURNAL FIELDS")))


# -- paths --------------------------------------------------------------------------------------

# What the package or the daemon makes, what the admin is told to make, and what belongs to the system.
INSTALLED = {
    places.CONFIG,
    "/etc/gpuwatch/conf.d",
    "/etc/gpuwatch/conf.d/*.yaml",
    places.STATE_DIR,
    f"{places.STATE_DIR}/state.db",
    f"{places.STATE_DIR}/history.db",
    f"{places.STATE_DIR}/evidence",
    places.RUN_DIR,
    *(f"{places.RUN_DIR}/{name}" for name in ("control.sock", "status.json", "waiting.jsonl", "lock", "nvml.lock", "hold")),
    "/lib/systemd/system/gpuwatch.service",
    "/usr/share/doc/gpuwatch/README.md",
}
OF_THE_ADMIN = {
    "/etc/gpuwatch/conf.d/10-site.yaml",
    "/etc/gpuwatch/conf.d/20-rules.yaml",
    "/etc/gpuwatch/keys",
    "/etc/gpuwatch/keys/wecom-ops",
    "/etc/systemd/system/gpuwatch.service.d",
    "/etc/systemd/system/gpuwatch.service.d/key.conf",
    "/etc/systemd/system/gpuwatch.service.d/throttle.conf",
    "/etc/systemd/system/train@.service.d",
    "/etc/systemd/system/train@.service.d/gpuwatch-hold.conf",
    "/data*",
}
OF_THE_SYSTEM = {
    *("/proc", "/run", "/var", "/dev/kmsg", "/dev/null", "/var/log/journal", "/proc/driver/nvidia"),
    *("/run/docker.sock", "/run/podman/podman.sock"),
}


@pytest.mark.parametrize("name", EVERY)
def test_absolute_paths_are_known_ones(name: str) -> None:
    text = re.sub(r"https?://\S+", "", document(name))
    found = {path.rstrip("/.") for path in re.findall(r"(?<![\w.~}\-/*\]])(/[a-z][\w.*/@-]*)", text)}
    assert found - INSTALLED - OF_THE_ADMIN - OF_THE_SYSTEM == set()


@pytest.mark.parametrize("path", sorted(INSTALLED))
def test_installed_paths_are_the_programs(path: str) -> None:
    """Their names are in the program, the package or the units."""
    sources = [*(TREE / "gpuwatch").rglob("*.py"), *(TREE / "packaging").rglob("*"), *(TREE / "systemd").iterdir()]
    text = "".join(file.read_text(encoding="utf-8") for file in sources if file.is_file() and file.suffix != ".8")
    assert Path(path).name in text


@pytest.mark.parametrize("name", MARKDOWN)
def test_paths_in_the_tree_exist(name: str) -> None:
    tops = {entry.name for entry in TREE.iterdir()} - {"build", "dist", ".venv"}  # those may be absent
    text = re.sub(r"https?://\S+", "", document(name)).replace("/NAME.py", "/wecom.py")
    for path in re.findall(r"(?<![\w/.~*-])((?:[\w.-]+/)+[\w.*-]*)", text):
        if path.split("/")[0] in tops or path.endswith((".py", ".md", ".c", ".json", ".jsonl")):
            assert list(TREE.glob(path.rstrip("/."))), f"{name}: {path}"


# -- the rest -----------------------------------------------------------------------------------


def test_tiers_are_all_described() -> None:
    tiers = re.findall(r'^    "(\w+)": \w+,$', (TREE / ".ci/tiers.py").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert tiers
    assert [row[0] for row in table("CONTRIBUTING.md", "Tier")] == tiers


def test_changelog_begins_with_this_version() -> None:
    newest = re.search(r"^## \[([^\]]+)\]", document("CHANGELOG.md"), flags=re.MULTILINE)
    assert newest is not None
    assert newest[1] == gpuwatch.__version__


FORBIDDEN = (
    r"(?<!login )\bsessions?\b(?!-)",  # of systemd only
    r"\bissues? #?\d",
    r"/work\b",
    r"\b(?:seamless|powerful|robust|effortless|revolutionary|cutting-edge|blazing|world-class|state-of-the-art)",
    r"强大|极致|赋能|领先|一站式|无缝",
)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_words_that_do_not_belong_here(name: str, pattern: str) -> None:
    assert re.findall(pattern, document(name), flags=re.IGNORECASE) == []
