"""What an Xid means, for people. Pure apart from loading the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from gpuwatch.catalog import kernel, xid
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
        "the card counted a fault of its own. Once is a warning; again after a reset is a case for replacement.",
        "该卡记录到自身故障。一次是警告；重置后再次出现则应考虑更换。",
    ),
    "link": (
        "a link saw an error. It does not prove which end, or the board between them, is at fault.",
        "某条链路出现错误。但不能说明是哪一端、还是中间的底板有问题。",
    ),
    "driver": (
        "driver, firmware or their versions are involved.",
        "与驱动、固件或它们的版本有关。",
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
_NEXT = (
    "journalctl -k --grep NVRM --since -1h   (what the driver said before it), gpuwatch incident list",
    "journalctl -k --grep NVRM --since -1h（之前驱动说了什么）、gpuwatch incident list",
)
_WORDS = {
    "class": ("Class", "类别"),
    "action": ("NVIDIA's immediate action", "NVIDIA 建议的立即处理"),
    "proves": ("What it proves", "能说明什么"),
    "next": ("Look next", "接着看"),
    "old": ("Current drivers no longer use this number.", "当前驱动已不再使用此编号。"),
    "device": ("Device", "设备"),
    "pid": (
        "Process named: {process} (pid {pid}); a hint only, often the tool that called the driver last",
        "日志所指进程：{process}（pid {pid}）；仅供参考，往往只是最后调用驱动的工具",
    ),
    "cause": ("A consequence of Xid {xid}; look at that one first.", "由 Xid {xid} 引起，请先看那一条。"),
    "colon": (": ", "："),
    "title": ("Xid {xid}: {meaning}", "Xid {xid}：{meaning}"),
}


@dataclass(frozen=True)
class Explanation:
    """One Xid in words. `action` is NVIDIA's own word, `action_text` ours for it; `facts` are those of a line."""

    number: int
    known: bool
    language: str
    mnemonic: str
    klass: str
    class_text: str
    severity: Severity
    meaning: str
    action: str
    action_text: str
    in_use: bool
    proves: str
    next_step: str
    facts: Mapping[str, Scalar]

    def lines(self) -> tuple[str, ...]:
        """For a terminal, without colour."""
        word = {key: pair[self.language == "zh"] for key, pair in _WORDS.items()}
        colon = word["colon"]
        meaning = self.meaning[:1].lower() + self.meaning[1:] if self.language == "en" else self.meaning
        lines = [
            word["title"].format(xid=self.number, meaning=meaning),
            f"{word['class']}{colon}{self.class_text} · {word['action']}{colon}{self.action_text}",
        ]
        if self.facts.get("pci"):
            lines.append(f"{word['device']}{colon}{self.facts['pci']}")
        if self.facts.get("pid"):
            lines.append(word["pid"].format(process=self.facts.get("process") or "?", pid=self.facts["pid"]))
        if self.facts.get("caused_by") is not None:
            lines.append(word["cause"].format(xid=self.facts["caused_by"]))
        if self.known and not self.in_use:
            lines.append(word["old"])
        lines.append(f"{word['proves']}{colon}{self.proves}")
        lines.append(f"{word['next']}{colon}{self.next_step}")
        return tuple(lines)


def explain_xid(code: int, language: str = "en", facts: Optional[Mapping[str, Scalar]] = None) -> Explanation:
    """An Xid by number; `facts` are those of its line where there is one (catalog.kernel). `language`: en | zh."""
    entry = xid.lookup(code)
    facts = {"xid": code} if facts is None else facts
    klass, severity = xid.judge(facts)
    zh = language == "zh"
    return Explanation(
        number=code,
        known=entry.known,
        language=language,
        mnemonic=entry.mnemonic,
        klass=klass,
        class_text=xid.class_name(klass, language),
        severity=severity,
        meaning=entry.sentence(language),
        action=entry.action,
        action_text=xid.action_text(entry.action, language),
        in_use=entry.in_use,
        proves=_PROVES.get(code, _PROVES_BY_CLASS[klass])[zh],
        next_step=_NEXT[zh],
        facts=facts,
    )


def explain_line(line: str, language: str = "en") -> Optional[Explanation]:
    """The Xid in a line of the kernel log, with or without what journalctl or dmesg puts before it; None if none."""
    at = line.find("NVRM: Xid")
    facts = kernel.parse(clean(line[at:])) if at >= 0 else None
    number = facts.get("xid") if facts else None
    return explain_xid(number, language, facts) if isinstance(number, int) else None
