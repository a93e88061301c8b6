"""Takes secrets out of text before it is written down. Pure.

What counts: values after names that mean a secret (key=, token:, --password X, "secret": "X"),
Authorization headers, user:password@ in URLs, webhook paths, private key blocks, and tokens whose
form gives them away. What is removed leaves its name, so that the line stays readable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

REMOVED = "[removed]"
_DEEPEST = 50
_NO_TEXT = frozenset((int, float, bool, type(None)))

_NAME = r"(?:key|token|secret|passw(?:or)?d|passphrase|pwd|credentials?|signature|cookie|(?<![A-Za-z0-9])sign)"
# Each alternative starts at something rare and looks at most once at what follows: no text takes long.
_SECRET = re.compile(
    r"(?P<block>-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z))"
    r"|(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)[^\s/@\"'<>]+@"
    r"|(?P<header>\b(?:proxy-)?authorization\b[\"']?\s*[:=]\s*[\"']?(?:(?:basic|bearer|digest|token)\s+)?)[^\s\"',;]+"
    r"|(?P<bearer>\b(?:bearer|basic)\s+)[A-Za-z0-9+/=._~-]{12,}"
    r"|(?P<hook>/(?:services|hook|webhooks|bot)/|/bot(?=\d{6}))[A-Za-z0-9_:/-]{16,}"
    r"|(?P<named>" + _NAME + r"(?:[\"']?\s*[:=]\s*|%3D))(?:\"[^\"\n]*\"?|'[^'\n]*'?|[^\s\"'&,;]+)"
    r"|(?P<option>(?<!\S)--?[A-Za-z0-9_.-]{0,40}" + _NAME + r"\s+)(?!-)(?:\"[^\"\n]*\"?|'[^'\n]*'?|\S+)"
    r"|\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{20,}"
    r"|sk-[A-Za-z0-9_-]{16,}|xox[a-z]-[A-Za-z0-9-]{10,}|eyJ[\w-]{8,400}\.[\w-]{8,4000}\.[\w-]*)",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(r"[\w.-]*" + _NAME, re.IGNORECASE)
# Every alternative needs one of these: most text has none, and is done with one fast search.
_HINT = re.compile(
    r"key|token|secret|passw|passph|pwd|credential|sign|cookie|authorization|bearer|basic|://|PRIVATE"
    r"|/(?:services|hook|webhooks|bot)/|/bot\d|AKIA|gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox|eyJ",
    re.IGNORECASE,
)


def redact(text: str) -> tuple[str, int]:
    """The text without secrets, and how many were removed."""
    if not _HINT.search(text):
        return text, 0
    return _SECRET.subn(_without, text)


def redact_tree(data: Any) -> tuple[Any, int]:
    """The same for everything textual in JSON-able data, keys included.

    The text under a key that means a secret is removed as a whole. Nesting deeper than 50 is cut.
    """
    return _tree(data, 0)


def _tree(data: Any, depth: int) -> tuple[Any, int]:
    if isinstance(data, str):
        return redact(data)
    if depth > _DEEPEST:
        return REMOVED, 1
    if isinstance(data, Mapping):
        clean: dict[str, Any] = {}
        count = 0
        for key, entry in data.items():
            name, in_name = redact(str(key))
            if isinstance(entry, str) and entry and entry != REMOVED and _SECRET_NAME.fullmatch(str(key)):
                entry, inside = REMOVED, 1
            else:
                entry, inside = _tree(entry, depth + 1)
            clean[name] = entry
            count += in_name + inside
        return clean, count
    if isinstance(data, (list, tuple)):
        if _NO_TEXT.issuperset(map(type, data)):
            return list(data), 0  # a column of numbers: there are long ones
        entries = [_tree(entry, depth + 1) for entry in data]
        return [entry for entry, _ in entries], sum(count for _, count in entries)
    return data, 0


def _without(found: re.Match[str]) -> str:
    groups = found.groupdict()
    if groups["scheme"]:
        return f"{groups['scheme']}{REMOVED}@"
    kept = groups["header"] or groups["bearer"] or groups["hook"] or groups["named"] or groups["option"] or ""
    return kept + REMOVED
