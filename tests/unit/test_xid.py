"""The tables of Xid and SXid numbers, NVLink 5 registers and recovery actions, and their explanations."""

from __future__ import annotations

import re

import pytest

from gpuwatch.catalog import judge, nvlink5, sxid, xid
from gpuwatch.catalog.explain import explain_line, explain_sxid, explain_text, explain_xid
from gpuwatch.model.event import Scalar
from gpuwatch.model.rule import Severity

LANGUAGES = ("en", "zh")


def test_the_table_is_complete() -> None:
    assert xid.numbers() == tuple(range(1, 173))


@pytest.mark.parametrize("number", xid.numbers())
def test_every_code_has_facts_and_words(number: int) -> None:
    entry = xid.lookup(number)
    for language in LANGUAGES:
        assert judge.next_step({"kind": "xid", "xid": number}, language)
    assert entry.known and entry.klass in xid.CLASSES and re.fullmatch(r"[A-Z0-9_]+( / [A-Z0-9_]+)?", entry.mnemonic)
    assert xid.action_text(entry.action, "en") != entry.action
    assert entry.sentence("en").isascii() and entry.sentence("en").endswith(".")
    assert entry.sentence("zh").endswith("。") and not entry.sentence("zh").isascii()
    for language in LANGUAGES:
        assert xid.class_name(entry.klass, language)
        assert len(explain_xid(number, language).lines()) >= 4


@pytest.mark.parametrize(
    "number, klass, severity",
    [
        (13, "application", Severity.INFO),
        (31, "application", Severity.INFO),
        (45, "application", Severity.INFO),
        (48, "gpu_reset", Severity.CRITICAL),
        (63, "informational", Severity.INFO),
        (64, "hardware", Severity.CRITICAL),
        (74, "link", Severity.CRITICAL),
        (79, "host_restart", Severity.CRITICAL),
        (94, "application", Severity.WARNING),
        (95, "gpu_reset", Severity.CRITICAL),
        (38, "driver", Severity.WARNING),
        (43, "application", Severity.INFO),
        (44, "application", Severity.WARNING),
        (61, "driver", Severity.WARNING),
        (62, "gpu_reset", Severity.CRITICAL),
        (92, "hardware", Severity.WARNING),
        (106, "ignore", Severity.INFO),
        (119, "gpu_reset", Severity.CRITICAL),
        (120, "gpu_reset", Severity.CRITICAL),
        (145, "link", Severity.WARNING),
        (171, "hardware", Severity.CRITICAL),
        (173, "unknown", Severity.WARNING),
        (0, "unknown", Severity.WARNING),
    ],
)
def test_well_known_codes(number: int, klass: str, severity: Severity) -> None:
    entry = xid.lookup(number)
    assert (entry.klass, entry.severity) == (klass, severity)


def test_explain_a_number() -> None:
    lines = explain_xid(79).lines()
    assert lines[0] == 'Xid 79: the GPU is no longer reachable over PCIe ("fallen off the bus").'
    assert lines[1] == "Class: reboot required · NVIDIA's immediate action: restart the bare-metal host"
    assert explain_xid(79, "zh").lines()[1] == "类别：需要重启主机 · NVIDIA 建议的立即处理：重启物理机"


def test_an_unknown_number_is_explained_as_unknown() -> None:
    explanation = explain_xid(4711)
    assert (explanation.known, explanation.klass, explanation.severity) == (False, "unknown", Severity.WARNING)


@pytest.mark.parametrize("before", ["", "Nov 30 13:45:31 gpu-07 kernel: ", "[12345.678901] "])
def test_explain_a_line(before: str) -> None:
    line = before + "NVRM: Xid (PCI:0000:61:00): 45, pid=59620, name=py, Ch 0000000a, caused by previous Xid 109"
    explanation = explain_line(line)
    assert explanation is not None and explanation.number == 45
    text = "\n".join(explanation.lines())
    assert "0000:61:00.0" in text and "py (pid 59620); a hint only" in text and "Xid 109" in text


def test_the_line_outranks_the_table() -> None:
    line = "NVRM: Xid (PCI:0000:9c:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    explanation = explain_line(line)
    assert explanation is not None and explanation.klass == "host_restart"


RESETS = [63, 95, 109, 119, 120, 140]


@pytest.mark.parametrize("number", RESETS)
def test_an_advice_to_reset_says_how_to_let_go_of_the_card(number: int) -> None:  # S14
    for language in LANGUAGES:
        assert "gpuwatch maintenance on --release-gpu" in judge.next_step({"kind": "xid", "xid": number}, language)


def test_every_advice_to_reset_says_so() -> None:  # S14
    facts: list[dict[str, Scalar]] = [{"kind": "xid", "xid": number} for number in xid.numbers()]
    facts += [{"kind": "xid", "xid": 154, "recovery_to": number} for number in range(8)]
    facts += [{"kind": "sxid", "sxid": 20034, "fatal": True}]
    for one in facts:
        step = judge.next_step(one, "en")
        assert ("reset it" not in step and "reset the" not in step) or "--release-gpu" in step, (one, step)


@pytest.mark.parametrize("code", ["79", "Xid 79", "xid:79", "XID #79", " 79 "])
def test_ways_to_write_an_xid(code: str) -> None:
    explanation = explain_text(code)
    assert explanation is not None and (explanation.kind, explanation.number) == ("xid", 79)


# NVSwitch -------------------------------------------------------------------------------------------


def test_the_sxid_table() -> None:
    assert len(sxid.numbers()) == 93
    groups = {"non-fatal": 0, "potentially fatal": 0, "always fatal": 0}
    for number in sxid.numbers():
        entry = sxid.lookup(number)
        groups[entry.group] += 1
        assert entry.known and entry.name and entry.klass in xid.CLASSES
        for language in LANGUAGES:
            assert entry.meaning[language] and entry.next_step[language]
    assert min(groups.values()) > 15


@pytest.mark.parametrize(
    "number, fatal, klass, severity",
    [
        (20034, True, "link", Severity.CRITICAL),
        (20034, False, "link", Severity.WARNING),
        (20034, None, "link", Severity.WARNING),
        (12028, False, "link", Severity.INFO),
        (12028, True, "link", Severity.CRITICAL),  # the word in the line outranks the table
        (22003, None, "link", Severity.CRITICAL),
        (22003, False, "link", Severity.WARNING),
        (10004, None, "hardware", Severity.CRITICAL),
        (10005, None, "hardware", Severity.INFO),
        (28002, False, "unknown", Severity.WARNING),
        (28002, True, "unknown", Severity.CRITICAL),
    ],
)
def test_the_gravity_of_an_sxid(number: int, fatal: Scalar, klass: str, severity: Severity) -> None:
    assert judge.judge({"kind": "sxid", "sxid": number, "fatal": fatal}) == (klass, severity)


def test_explain_an_sxid() -> None:
    explanation = explain_text("sxid:20034")
    assert explanation == explain_sxid(20034)
    assert explanation is not None and explanation.lines()[0] == "SXid 20034: a link of the switch went down."


# NVLink 5 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number, unit, intr_info, status, severity, action, investigate",
    [
        # the first generation's pattern, and the second's
        (145, "RLW_RXPIPE", 0x0409A0C2, 0x8, "Non-fatal", "IGNORE", "CONTACT_SUPPORT"),
        (145, "RLW_RXPIPE", 0x00000006, 0x8, "Non-fatal", "IGNORE", "CONTACT_SUPPORT"),
        (145, "RLW_REMAP", 0x00000082, 0x40, "Fatal", "RESET_GPU", "CONTACT_SUPPORT"),
        (145, "RLW_REMAP", 0x00000082, 0x100, "Non-fatal", "IGNORE", "IGNORE"),
        (149, "NETIR_LINK_EVT", 0x004505C6, 0x0, "Link Fatal", "RESET_GPU", "INVESTIGATE_LINK_SI"),
        (149, "NETIR_LINK_DOWN", 0x015001C6, 0x0, "Link Fatal", "RESET_GPU", "INVESTIGATE_PEER_DEVICE"),
        (149, "NETIR_BER_EVENT", 0x00000226, 0x2, "Non-fatal", "IGNORE", "INVESTIGATE_LINK_SI_AND_CABLES"),
        (149, "NETIR_MFDE_EVENT", 0x00000246, 0x3, "Non-fatal", "IGNORE", "IGNORE"),
        (149, "NETIR_MFDE_EVENT", 0x00000246, 0x4, "Fatal", "RESET_GPU", "CONTACT_SUPPORT"),
        (150, "MSE_WATCHDOG", 0x0, 0x0, "Fatal", "RESET_GPU", "CONTACT_SUPPORT"),
        # several bits: the gravest counts
        (145, "RLW_REMAP", 0x00000082, 0x140, "Fatal", "RESET_GPU", "CONTACT_SUPPORT"),
        (145, "RLW_REMAP", 0x00000082, 0x41, "Fatal", "RESET_GPU", "CONTACT_SUPPORT"),
        # a unit's name that the table does not have: the registers alone
        (147, "TREX_NEW", 0x00000184, 0x1, "Non-fatal", "IGNORE", "CONTACT_SUPPORT"),
    ],
)
def test_nvlink5_registers(
    number: int, unit: str, intr_info: int, status: int, severity: str, action: str, investigate: str
) -> None:  # K7
    cause = nvlink5.decode(number, unit, intr_info, status)[0]
    assert (cause.severity, cause.action, cause.investigate) == (severity, action, investigate)
    assert cause.text("en") and cause.text("zh")


def test_registers_that_no_row_fits() -> None:
    assert nvlink5.decode(145, "RLW_REMAP", 0xFFFFFFFF, 1) == ()
    assert nvlink5.decode(145, "RLW_REMAP", 0x00000082, 0x00000400) == ()
    assert nvlink5.decode(79, "RLW_REMAP", 0x00000082, 1) == ()
    assert nvlink5.rows() == 94


@pytest.mark.parametrize(
    "word, registers, severity",
    [
        ("Nonfatal", "0x0409a0c2 0x00000008", Severity.WARNING),
        ("Nonfatal", "0x00000082 0x00000100", Severity.INFO),  # nothing to do, nothing to look into
        ("Nonfatal", "0x00000082 0x00000040", Severity.WARNING),  # the table says fatal, the driver does not
        ("Fatal", "0x0409a0c2 0x00000008", Severity.CRITICAL),
        ("", "0x00000082 0x00000040", Severity.CRITICAL),
        ("", "0x00000082 0x00000004", Severity.WARNING),
        ("", "0xffffffff 0x00000004", Severity.WARNING),
    ],
)
def test_the_word_in_the_line_then_the_registers(word: str, registers: str, severity: Severity) -> None:  # K7
    unit = "RLW_RXPIPE" if "0409" in registers else "RLW_REMAP"
    line = f"NVRM: Xid (PCI:0018:01:00): 145, {unit} {word} XC0 i0 Link 11 ({registers} 0x00000001 0x0 0x0 0x0)"
    explanation = explain_line(line)
    assert explanation is not None and (explanation.klass, explanation.severity) == ("link", severity)
    assert explanation.facts["link"] == 11


# Recovery actions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number, klass, severity",
    [
        (0, "informational", Severity.INFO),
        (1, "gpu_reset", Severity.CRITICAL),
        (2, "host_restart", Severity.CRITICAL),
        (3, "gpu_reset", Severity.CRITICAL),
        (4, "gpu_reset", Severity.CRITICAL),
        (5, "link", Severity.CRITICAL),
        (6, "gpu_reset", Severity.CRITICAL),
        (7, "host_restart", Severity.CRITICAL),
        (8, "unknown", Severity.WARNING),
    ],
)
def test_recovery_actions_by_number(number: int, klass: str, severity: Severity) -> None:  # K10
    line = f"NVRM: Xid (PCI:0000:9c:00): 154, GPU recovery action changed from 0x0 (None) to 0x{number:x} (Any Label)"
    explanation = explain_line(line)
    assert explanation is not None and (explanation.klass, explanation.severity) == (klass, severity)
    if number < 8:
        assert "recover" in explanation.meaning


def test_codes_are_called_clues() -> None:
    for language in LANGUAGES:
        assert explain_xid(79, language).lines()[-1] == judge.CLUE[language]
