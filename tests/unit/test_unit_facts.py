"""Names, cgroups and time spans as systemd writes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuwatch.model.errors import SourceError
from gpuwatch.system.systemctl import parse_timespan
from gpuwatch.system.unit_facts import RawUnit, gather, nested_cgroups, valid_name

ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("infinity", None),
        ("1min 30s", 90.0),
        ("5s", 5.0),
        ("90", 90.0),
        ("1.500s", 1.5),
        ("1h 2min 3s 4ms", 3723.004),
        ("250ms", 0.25),
        ("100us", 1e-4),
        ("1w 2d", 777600.0),
        ("1month", 2629800.0),
        ("0", 0.0),
    ],
)
def test_time_spans(text: str, seconds: float) -> None:
    assert parse_timespan(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("text", ["", "soon", "1x", "s", "1min x"])
def test_what_is_no_time_span(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time span"):
        parse_timespan(text)


@pytest.mark.parametrize(
    "name, valid",
    [
        ("a.service", True),
        ("train@llama-7b.service", True),
        ("dev-disk-by\\x2duuid.device", True),
        ("run-r0123.scope", True),
        ("a@b@c.service", True),
        ("train@.service", False),
        ("a", False),
        ("a.conf", False),
        ("a*.service", False),
        ("a b.service", False),
        ("a/b.service", False),
        ("--now.service", False),
        ("a.service\n", False),
        ("x" * 260 + ".service", False),
        ("ä.service", False),
    ],
)
def test_names(name: str, valid: bool) -> None:
    assert valid_name(name) is valid


@pytest.mark.parametrize(
    "below, containers, units",
    [
        ("", 0, 0),
        ("plain/deeper", 0, 0),
        (f"docker-{ID}.scope", 1, 0),
        (f"docker/{ID}", 1, 0),
        (f"{ID}", 1, 0),
        (f"libpod-{ID}.scope/container", 1, 0),
        (f"libpod_parent/libpod-{ID}", 1, 0),
        (f"libpod-conmon-{ID}", 1, 0),
        (f"libpod-payload-{ID}", 0, 0),  # a quadlet's own container
        (f"crio-{ID}", 1, 0),
        (f"cri-containerd-{ID}.scope", 1, 0),
        ("payload/system.slice/x.service", 0, 2),
        ("init.scope", 0, 1),
    ],
)
def test_who_lives_below_a_cgroup(tmp_path: Path, below: str, containers: int, units: int) -> None:
    os.makedirs(tmp_path / "system.slice/a.service" / below)
    found = nested_cgroups(str(tmp_path), "/system.slice/a.service")
    assert (len(found[0]), len(found[1])) == (containers, units)
    assert all(path.startswith("/system.slice/a.service/") for path in (*found[0], *found[1]))


class Told:
    """A systemd of a few units."""

    def __init__(self, *units: RawUnit) -> None:
        self._units = {unit.name: unit for unit in units}

    def read(self, names: Sequence[str]) -> list[RawUnit]:
        return [self._units[name] for name in names]


def test_a_circle_of_dependencies_ends(tmp_path: Path) -> None:
    reader = Told(
        RawUnit("a.service", "loaded", "active", ("b.service",)),
        RawUnit("b.service", "loaded", "active", ("c.service", "a.service")),
        RawUnit("c.service", "loaded", "deactivating", ("a.service", "b.service")),
    )
    assert gather(reader, "a.service", str(tmp_path)).takes_along == ("b.service", "c.service")


def test_more_dependants_than_anyone_has(tmp_path: Path) -> None:
    many = [RawUnit(f"n{number}.service", "loaded", "active") for number in range(1100)]
    reader = Told(RawUnit("a.service", "loaded", "active", tuple(unit.name for unit in many)), *many)
    with pytest.raises(SourceError, match="more than 1000"):
        gather(reader, "a.service", str(tmp_path))
