"""The documents as text, and the program's own word on what they must say: for test_docs*.py."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gpuwatch.actions import targets
from gpuwatch.alerts.channels.options import channel_types
from gpuwatch.cli import main
from gpuwatch.config.kinds import duration_text
from gpuwatch.config.limits import limit_shown
from gpuwatch.config.load import load
from gpuwatch.model import reason
from gpuwatch.model.metric import METRICS
from gpuwatch.model.rule import Rule, Severity, Threshold
from gpuwatch.policy.victims import VERDICTS

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
    return [[cell.replace("`", "") for cell in row] for row in raw_table(name, title)]


def marked(cell: str) -> list[str]:
    """The words in backticks in a cell of `raw_table`."""
    return re.findall(r"`([a-z_]+)`", cell)


def raw_table(name: str, title: str) -> list[list[str]]:
    """The same with its backticks."""
    rows: list[list[str]] = []
    inside = False
    for line in document(name).splitlines():
        if line.startswith(f"| {title} |"):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
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


@cache
def reason_codes() -> set[str]:
    """Every code that may stand behind "nothing, because" or an action."""
    program = "".join(path.read_text(encoding="utf-8") for path in sorted((TREE / "gpuwatch").rglob("*.py")))
    imported = " ".join(re.findall(r"^from gpuwatch\.model\.reason import (.*)$", program, flags=re.MULTILINE))
    given = {*re.findall(r"\breason\.([A-Z_]+)\b", program), *re.findall(r"[A-Z_]+", imported)}
    own = {value for name, value in vars(reason).items() if name in given}
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
            grown = limit_text(rule.metric, rule.threshold)
            text = f"{rule.metric} grows {grown} in {duration_text(rule.change_over_s)}"
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
