"""Runs the tests tier by tier, times each, and says by name which could not run and why.

    python .ci/tiers.py [TIER ...]

The last line is `N passed, N failed`. With GPUWATCH_TESTS_MUST_RUN set, a skipped test is a failure unless its
reason begins with "optional:".
"""

from __future__ import annotations

import collections
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent.parent
MUST_RUN = bool(os.environ.get("GPUWATCH_TESTS_MUST_RUN"))
PYTEST_FOUND_NOTHING = 5
TIER_LIMIT_S = 1200
OTHER_PYTHONS = ("3.9", "3.13")  # beside the one of .venv: the oldest supported and the newest known


@dataclasses.dataclass
class Outcome:
    """What a tier came to."""

    passed: int = 0
    failed: int = 0
    skipped: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)  # by reason
    note: str = ""


def lint(name: str) -> Outcome:
    """Linters and types (the import contracts are a unit test)."""
    outcome = Outcome()
    for argv in (["-m", "ruff", "check", "--quiet", "."], ["-m", "mypy", "--no-error-summary"]):
        if subprocess.run([sys.executable, *argv], cwd=HERE, check=False).returncode == 0:
            outcome.passed += 1
        else:
            outcome.failed += 1
            print(f"  failed: {' '.join(argv[1:])}")
    return outcome


def pytest_tier(name: str, python: str = sys.executable, side_by_side: bool = False) -> Outcome:
    """One directory below tests/."""
    if not any((HERE / "tests" / name).rglob("test_*.py")):
        return Outcome(note="no tests yet")
    with tempfile.TemporaryDirectory(prefix="gpuwatch-tiers-") as place:
        report = Path(place) / "report.xml"
        argv = [python, "-m", "pytest", "-q", f"tests/{name}", f"--junitxml={report}", "-o", "junit_family=xunit2"]
        argv += ["-n", "2", "--dist", "load"] if side_by_side else []
        try:
            status = subprocess.run(argv, cwd=HERE, check=False, timeout=TIER_LIMIT_S, env=_environ(name)).returncode
        except subprocess.TimeoutExpired:
            return Outcome(failed=1, note=f"did not end within {TIER_LIMIT_S} s")
        if status not in (0, 1, PYTEST_FOUND_NOTHING) or not report.exists():
            return Outcome(failed=1, note=f"pytest ended with {status}")
        return _counted(ElementTree.parse(report))


def _environ(name: str) -> dict[str, str]:
    """Tiers that fsync a lot and prove nothing by the disk's speed work in memory, where there is such a place."""
    in_memory = name in ("unit", "scenarios") and os.access("/dev/shm", os.W_OK)
    return {**os.environ, "TMPDIR": "/dev/shm"} if in_memory else dict(os.environ)


def _counted(report: ElementTree.ElementTree) -> Outcome:
    outcome = Outcome()
    for case in report.iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failed += 1
        elif skip is not None and skip.get("type") != "pytest.xfail":
            outcome.skipped[skip.get("message", "").removeprefix("Skipped: ")] += 1
        else:
            outcome.passed += 1
    return outcome


def side_by_side(name: str) -> Outcome:
    """A tier whose files don't disturb each other: two at a time."""
    return pytest_tier(name, side_by_side=True)


def pythons(name: str) -> Outcome:
    """The unit and scenario tiers on the other interpreters, where they exist."""
    total = Outcome()
    for version in OTHER_PYTHONS:
        found = _interpreter(version)
        if not found:
            total.skipped[f"optional: no Python {version} on this machine"] += 1
            continue
        python = _environment(version, found)
        for tier in ("unit", "scenarios"):
            print(f"  Python {version}, {tier}")
            one = pytest_tier(tier, python=python, side_by_side=True)
            total.passed, total.failed = total.passed + one.passed, total.failed + one.failed
            total.skipped.update(one.skipped)
    return total


def _interpreter(version: str) -> str:
    known = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    candidates = [str(path) for path in known] + [shutil.which(f"python{version}") or ""]
    usable = (path for path in candidates if path and _can_make_environment(path))
    return next(usable, "")


def _can_make_environment(python: str) -> bool:
    probe = "import ensurepip, venv, os, sysconfig; os.stat(sysconfig.get_path('include') + '/Python.h')"
    return subprocess.run([python, "-c", probe], stderr=subprocess.DEVNULL, check=False).returncode == 0


def _environment(version: str, base: str) -> str:
    """Python of a virtual environment with this version; made once, as `make env` does for .venv."""
    place = HERE / f".venv-{version}"
    python, stamp = place / "bin" / "python", place / ".made"
    if not stamp.exists() or stamp.stat().st_mtime < (HERE / "pyproject.toml").stat().st_mtime:
        subprocess.run([base, "-m", "venv", str(place)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-qq", "-e", ".[test]"], cwd=HERE, check=True)
        stamp.touch()
    return str(python)


TIERS: dict[str, Callable[[str], Outcome]] = {
    "lint": lint,
    "unit": side_by_side,
    "scenarios": side_by_side,
    "contract": pytest_tier,
    "integration": pytest_tier,
    "packaging": pytest_tier,
    "e2e": side_by_side,
    "pythons": pythons,
}


def main(wanted: list[str]) -> int:
    """Run them; 0 when nothing failed."""
    unknown = [name for name in wanted if name not in TIERS]
    if unknown:
        print(f"no tier {', '.join(unknown)}; there are: {', '.join(TIERS)}", file=sys.stderr)
        return 2
    rows: list[tuple[str, Outcome, float]] = []
    for name in wanted or TIERS:
        print(f"== {name}", flush=True)
        began = time.monotonic()
        outcome = TIERS[name](name)
        rows.append((name, outcome, time.monotonic() - began))
    print()
    for name, outcome, took_s in rows:
        _tell(name, outcome, took_s)
    passed, failed = sum(row[1].passed for row in rows), sum(row[1].failed for row in rows)
    held_back = sum(_unwelcome(row[1]) for row in rows) if MUST_RUN else 0
    if held_back:
        print(f"{held_back} skipped although this machine can run everything: counted as failed")
    print(f"{passed} passed, {failed + held_back} failed")
    return 1 if failed + held_back else 0


def _tell(name: str, outcome: Outcome, took_s: float) -> None:
    skips = sum(outcome.skipped.values())
    if skips and not outcome.passed and not outcome.failed:
        what = "skipped"
    else:
        counts = f"{outcome.passed} passed, {outcome.failed} failed" + (f", {skips} skipped" if skips else "")
        what = outcome.note or counts
    print(f"{name:12} {took_s:6.1f} s  {what}")
    for reason, times in outcome.skipped.most_common():
        print(f"{'':22}skipped{f' ({times})' if times > 1 else ''}: {reason}")


def _unwelcome(outcome: Outcome) -> int:
    return sum(times for reason, times in outcome.skipped.items() if not reason.startswith("optional:"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
