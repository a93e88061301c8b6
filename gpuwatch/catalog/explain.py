"""What a number, a line or a journal entry means, for people and as one flat object. Pure apart from loading tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from gpuwatch.catalog import entry, judge, sxid, xid
from gpuwatch.catalog.fields import FLAT, Facts
from gpuwatch.catalog.text import clean
from gpuwatch.model.event import Scalar
from gpuwatch.model.rule import Severity

_PROVES = {
    79: (
        (
            "the driver lost the device at that moment. "
            "It does not prove why: power, riser, heat and firmware look the same here."
        ),
        "驱动在那一刻失去了该设备。但不能说明原因：供电、转接卡、过热与固件问题在这里看起来都一样。",
    ),
}
_PROVES_BY_CLASS = {
    "application": (
        (
            "a program's work on the GPU failed. It does not prove that the program is wrong: "
            "bad hardware can look like this, above all when it stays on one card."
        ),
        "某个程序在 GPU 上的工作失败了。但不能说明就是程序的错：硬件问题也可能如此，尤其是总出现在同一张卡上时。",
    ),
    "gpu_reset": (
        "the card can't be trusted until it is reset. It does not prove that the card is broken.",
        "该卡在重置之前不可信。但不能说明该卡已损坏。",
    ),
    "host_restart": (
        "the driver can't recover by itself. It does not prove what failed first.",
        "驱动已无法自行恢复。但不能说明最先出问题的是什么。",
    ),
    "hardware": (
        "a part counted a fault of its own. Once is a warning; again after a reset is a case for replacement.",
        "某个部件记录到自身故障。一次是警告；重置后再次出现则应考虑更换。",
    ),
    "link": (
        "a link saw an error. It does not prove which end, or the board between them, is at fault.",
        "某条链路出现错误。但不能说明是哪一端、还是中间的底板有问题。",
    ),
    "driver": (
        "driver, firmware or their versions are involved.",
        "与驱动、固件或它们的版本有关。",
    ),
    "host": (
        "that the host reported it. It does not prove that the GPUs are fine.",
        "说明主机报告了它。但不能说明 GPU 没有问题。",
    ),
    "informational": (
        "only that it happened. Look at the lines around it.",
        "只说明发生过。请看它前后的日志。",
    ),
    "ignore": ("nothing.", "不说明任何问题。"),
    "unknown": (
        "only that the driver reported it. This version of gpuwatch does not know more.",
        "只说明驱动报告了它。此版本的 gpuwatch 没有更多资料。",
    ),
}
_USER_PROVES = (
    "only that somebody printed this line; anybody can. Nothing acts on it.",
    "只说明有人打印了这一行，任何人都可以打印。不会据此执行任何动作。",
)
_WORDS = {
    "class": ("Class", "类别"),
    "severity": ("severity", "级别"),
    "action": ("NVIDIA's immediate action", "NVIDIA 建议的立即处理"),
    "proves": ("What it proves", "能说明什么"),
    "next": ("Do next", "下一步"),
    "old": ("Current drivers no longer use this number.", "当前驱动已不再使用此编号。"),
    "device": ("Device", "设备"),
    "unit": ("Unit", "单元"),
    "pid": (
        "Process named: {process} (pid {pid}); a hint only, often the tool that called the driver last",
        "日志所指进程：{process}（pid {pid}）；仅供参考，往往只是最后调用驱动的工具",
    ),
    "process": ("Process: {process} (pid {pid})", "进程：{process}（pid {pid}）"),
    "cause": ("A consequence of Xid {xid}; look at that one first.", "由 Xid {xid} 引起，请先看那一条。"),
    "registers": (
        "Registers: {unit}, {severity}; NVIDIA's action: {action}",
        "寄存器解码：{unit}，{severity}；NVIDIA 建议：{action}",
    ),
    "colon": (": ", "："),
    "title": ("{name}: {meaning}", "{name}：{meaning}"),
}


@dataclass(frozen=True)
class Explanation:
    """One event in words. `action` is NVIDIA's own word for an Xid, `action_text` ours for it, "" for others."""

    language: str
    kind: str
    facts: Mapping[str, Scalar]
    klass: str
    class_text: str
    severity: Severity
    meaning: str
    next_step: str
    proves: str
    number: Optional[int] = None
    known: bool = True
    mnemonic: str = ""
    action: str = ""
    action_text: str = ""
    in_use: bool = True

    def lines(self) -> tuple[str, ...]:
        """For a terminal, without colour."""
        word = {key: pair[self.language == "zh"] for key, pair in _WORDS.items()}
        colon = word["colon"]
        meaning = self.meaning[:1].lower() + self.meaning[1:] if self.language == "en" else self.meaning
        second = f"{word['class']}{colon}{self.class_text}"
        if self.action_text:
            second += f" · {word['action']}{colon}{self.action_text}"
        else:
            second += f" · {word['severity']}{colon}{self.severity.value}"
        lines = [word["title"].format(name=self._name(), meaning=meaning), second]
        lines += self._fact_lines(word)
        if self.known and not self.in_use:
            lines.append(word["old"])
        lines.append(f"{word['proves']}{colon}{self.proves}")
        lines.append(f"{word['next']}{colon}{self.next_step}")
        lines.append(judge.CLUE[self.language])
        return tuple(lines)

    def _name(self) -> str:
        if self.number is None:
            return self.kind
        return f"{'SXid' if self.kind == 'sxid' else 'Xid'} {self.number}"

    def _fact_lines(self, word: Mapping[str, str]) -> list[str]:
        facts, colon = self.facts, word["colon"]
        lines = [
            f"{word[name]}{colon}{facts[key]}" for name, key in (("device", "pci"), ("unit", "unit")) if facts.get(key)
        ]
        if facts.get("pid"):
            form = word["pid"] if self.kind == "xid" else word["process"]
            lines.append(form.format(process=facts.get("process") or "?", pid=facts["pid"]))
        if facts.get("caused_by") is not None:
            lines.append(word["cause"].format(xid=facts["caused_by"]))
        cause = xid.cause(facts) if self.kind == "xid" else None
        if cause is not None:
            action = f"{cause.action}, {cause.investigate}"
            lines.append(word["registers"].format(unit=cause.unit, severity=cause.severity, action=action))
        return lines

    def flat(self) -> dict[str, Scalar]:
        """Everything in one object without inner ones, under the names of catalog.fields."""
        row: dict[str, Scalar] = dict.fromkeys(FLAT)
        row.update(self.facts)
        row.update(
            {
                "kind": self.kind,
                "class": self.klass,
                "alert_severity": self.severity.value,
                "meaning": self.meaning,
                "next_step": self.next_step,
            }
        )
        if self.number is not None:
            row.update({"known": self.known, "mnemonic": self.mnemonic})
        if self.kind == "xid":
            row.update({"action": self.action, "action_text": self.action_text, "in_use": self.in_use})
        return row


def explain_facts(facts: Mapping[str, Scalar], language: str = "en") -> Explanation:
    """An event by its facts, `kind` among them. `language`: en | zh."""
    klass, severity = judge.judge(facts)
    kind, zh = str(facts["kind"]), language == "zh"
    user = facts.get("source_trust") == entry.USER
    number = facts.get(kind)
    proves = _USER_PROVES if user else _PROVES_BY_CLASS[klass]
    base = Explanation(
        language=language,
        kind=kind,
        facts=facts,
        klass=klass,
        class_text=xid.class_name(klass, language),
        severity=severity,
        meaning=str(facts.get("meaning") or judge.meaning(facts, language)),
        next_step=judge.next_step(facts, language),
        proves=proves[zh],
    )
    if kind == "xid" and isinstance(number, int):
        return _with_xid(base, number, zh)
    if kind == "sxid" and isinstance(number, int):
        found = sxid.lookup(number)
        return Explanation(**{**vars(base), "number": number, "known": found.known, "mnemonic": found.name})
    return base


def _with_xid(base: Explanation, number: int, zh: bool) -> Explanation:
    row = xid.lookup(number)
    own = {
        "number": number,
        "known": row.known,
        "mnemonic": row.mnemonic,
        "action": row.action,
        "action_text": xid.action_text(row.action, base.language),
        "in_use": row.in_use,
        "proves": _PROVES.get(number, _PROVES_BY_CLASS[base.klass])[zh],
    }
    return Explanation(**{**vars(base), **own})


def explain_xid(code: int, language: str = "en") -> Explanation:
    """An Xid by number."""
    return explain_facts({"kind": "xid", "xid": code}, language)


def explain_sxid(code: int, language: str = "en") -> Explanation:
    """An NVSwitch error by number."""
    return explain_facts({"kind": "sxid", "sxid": code}, language)


_NUMBER = re.compile(r"(?:(s?xid)[ :#]*)?([0-9]{1,9})", re.IGNORECASE)


def explain_text(text: str, language: str = "en") -> Optional[Explanation]:
    """A number (`79`, `xid 79`, `sxid:20034`) or a line; None for what is no event."""
    match = _NUMBER.fullmatch(text.strip())
    if match:
        code = int(match[2])
        return explain_sxid(code, language) if (match[1] or "").lower() == "sxid" else explain_xid(code, language)
    return explain_line(text, language)


# What dmesg, journalctl and rsyslog put before the line itself.
_BEFORE = re.compile(
    r"(?:<[0-9]{1,3}>)?(?:\[ *[0-9]{1,9}\.[0-9]{1,9}\] ?"
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]{2} [0-9:]{8} [0-9]{4}\] "
    r"|(?:[A-Z][a-z]{2} [ 0-9]{2} [0-9:.]{8,15}|[0-9T:.+-]{19,35}) \S{1,64} "
    r"(?P<tag>[^\s:\[]{1,64})(?:\[[^\]]{1,16}\])?: )"
)
_KERNEL = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel"}
_MANAGER = {"_TRANSPORT": "journal", "_PID": "1"}
_JOURNALD = {"_TRANSPORT": "driver"}
_READ_AS: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "kernel": (_KERNEL,),
    "systemd": (_MANAGER,),
    "systemd-journald": (_JOURNALD,),
}


def explain_line(line: str, language: str = "en") -> Optional[Explanation]:
    """A line of a log, with or without what journalctl or dmesg puts before it; None for what is no event. Whoever
    asks vouches for where the line is from: a line alone can't tell."""
    found = read_line(line)
    return explain_facts(found[0], language) if found else None


def read_line(line: str) -> tuple[Facts, ...]:
    """The facts of a line by its looks."""
    before = _BEFORE.match(line)
    text = line[before.end() :] if before else line
    for fields in _READ_AS.get((before and before["tag"]) or "", (_KERNEL, _MANAGER, _JOURNALD, {})):
        found = entry.read({**fields, "MESSAGE": text})
        if found:
            return found
    at = line.find("NVRM: Xid")
    return entry.read({**_KERNEL, "MESSAGE": clean(line[at:])}) if at > 0 else ()


def gravest(found: tuple[Facts, ...]) -> Optional[Facts]:
    """Of the facts of one entry the one to tell: the gravest, and of equal ones the first."""
    return max(found, key=lambda facts: judge.judge(facts)[1].rank, default=None)
