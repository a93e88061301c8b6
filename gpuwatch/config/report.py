"""Problems as they are found, and how a value from a file is repeated in one: short, and never a secret."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from gpuwatch.model.errors import Problem

MAX_SHOWN = 60  # characters of a value that an error repeats


@dataclass(frozen=True)
class Place:
    """Where something is written; line and column count from 1."""

    file: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Report:
    """Collects what is wrong with one file. A place with a secret in it is told about once only."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self._settled: set[Place] = set()

    def error(self, place: Place, path: str, text: str) -> None:
        """Something that keeps the configuration from being used. `path`: "rules[0].metric" or ""."""
        if place not in self._settled:
            self.problems.append(_problem(place, path, text))

    def warn(self, place: Place, path: str, text: str) -> None:
        """Something that is allowed and probably not meant."""
        self.warnings.append(_problem(place, path, text))

    def settle(self, place: Place, path: str, text: str) -> None:
        """An error after which nothing else about this place is said."""
        self.error(place, path, text)
        self._settled.add(place)


def _problem(place: Place, path: str, text: str) -> Problem:
    return Problem(place.file, place.line, place.column, f"{path}: {text}" if path else text)


def in_order(problems: Iterable[Problem], files: tuple[str, ...]) -> tuple[Problem, ...]:
    """By file as they are read, then line and column; each problem once."""
    rank = {file: number for number, file in enumerate(files)}
    unique = dict.fromkeys(problems)
    return tuple(sorted(unique, key=lambda one: (rank.get(one.file, len(rank)), one.line, one.column)))


_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_SECRET = re.compile(
    rf"(?<!gpu-)(?<![0-9a-f]){_UUID}|(?:key|token|secret|password|passwd|pwd|sign|auth)=|//[^/\s]*@|bearer\s",
    re.IGNORECASE,
)
_DENSE = re.compile(r"(?=[A-Za-z+/_=-]*[0-9])(?=[0-9+/_=-]*[A-Za-z])[A-Za-z0-9+/_=-]{32}")
_LOOKED_AT = 400  # characters, much more than are ever shown; keeps the search short
_URL_SECRET = re.compile(
    r"[?&;](?:key|token|access_token|secret|sign)=|[a-z]://[^/\s]{0,200}:[^/\s]{0,200}@", re.IGNORECASE
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def holds_secret(text: str) -> bool:
    """True for an URL that carries a key or a password: this has no place anywhere in the files."""
    return _URL_SECRET.search(text) is not None


def looks_secret(text: str) -> bool:
    """True for what could be a key, token or password. Errs towards True: it only hides text."""
    start = text[:_LOOKED_AT]
    return _SECRET.search(start) is not None or _DENSE.search(start) is not None


def shown(text: str) -> str:
    """A text from a file as an error may repeat it: one line, bounded, no secret."""
    if looks_secret(text):
        return "(not shown: it looks like a secret)"
    clean = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
    return clean if len(clean) <= MAX_SHOWN else clean[: MAX_SHOWN - 3] + "..."


def quoted(text: str) -> str:
    """`shown` in quotes, or its remark without them."""
    return shown(text) if looks_secret(text) else f"'{shown(text)}'"


def closest(text: str, names: Iterable[str]) -> Optional[str]:
    """The name that was probably meant."""
    known = list(names)
    found = difflib.get_close_matches(text[:MAX_SHOWN], known, n=1, cutoff=0.6)
    if not found:
        lower = {name.lower(): name for name in known}
        found = [lower[near] for near in difflib.get_close_matches(text[:MAX_SHOWN].lower(), lower, n=1, cutoff=0.75)]
    return found[0] if found else None


def did_you_mean(text: str, names: Iterable[str]) -> str:
    """What to add to a problem: a space and "(did you mean X?)", or nothing."""
    name = closest(text, names)
    return f" (did you mean {name}?)" if name else ""
