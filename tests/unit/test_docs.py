"""README, its Chinese twin, CONTRIBUTING, CHANGELOG and the man page say what the program does."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.catalog.texts import LANGUAGES, TEXTS
from gpuwatch.cli import check, main, places
from gpuwatch.model.metric import METRICS
from tests.unit.documents import (
    CLONE,
    EVERY,
    LEAVES,
    MAN,
    MARKDOWN,
    READMES,
    SHELL_TOOLS,
    TREE,
    blocks,
    commands,
    document,
    inline,
    man_section,
    options,
    table,
    verb_parser,
    words_of,
)

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
    *(f"{places.RUN_DIR}/{name}" for name in ("control.sock", "status.json", "waiting.jsonl", "lock", "nvml.lock")),
    f"{places.RUN_DIR}/hold",
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
    r"(?<!login )\bsessions?\b(?!-|\nIt is a login session)",  # of systemd only; and a reason code
    r"\bissues? #?\d",
    r"/work\b",
    r"\b(?:seamless|powerful|robust|effortless|revolutionary|cutting-edge|blazing|world-class|state-of-the-art)",
    r"强大|极致|赋能|领先|一站式|无缝",
)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_words_that_do_not_belong_here(name: str, pattern: str) -> None:
    assert re.findall(pattern, document(name), flags=re.IGNORECASE) == []
