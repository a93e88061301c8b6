"""Names, cgroups and time spans as systemd writes them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Optional, Union

import pytest

from gpuwatch.model.errors import ActionError, SourceError
from gpuwatch.system.protocols import CpuLimit
from gpuwatch.system.systemctl import SystemctlFallback, parse_timespan
from gpuwatch.system.systemd import SystemdBus
from gpuwatch.system.unit_facts import (
    RawUnit,
    UnitList,
    change_limit,
    gather,
    nested_cgroups,
    unified_hierarchy,
    valid_name,
    why_no_cpu_limit,
)

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


A = "a.service"
GROUP = f"/ml.slice/ml-train.slice/{A}"
RUNS = RawUnit(A, "loaded", "active", control_group=GROUP, freezer="running")


def tree(root: Path, offered: str, *enabled: str) -> str:
    """A cgroup hierarchy whose cpu controller is enabled in the named slices ("" is the root)."""
    os.makedirs(f"{root}{GROUP}")
    (root / "cgroup.controllers").write_text(offered)
    for place in ("", "/ml.slice", "/ml.slice/ml-train.slice"):
        Path(f"{root}{place}/cgroup.subtree_control").write_text("cpu memory" if place in enabled else "memory")
    return str(root)


@pytest.mark.parametrize(
    "enabled, container, where",
    [
        (("", "/ml.slice", "/ml.slice/ml-train.slice"), "/ml.slice/ml-train.slice", ""),  # nothing is to be enabled
        (("", "/ml.slice"), "/ml.slice/ml-train.slice", "ml-train.slice"),
        (("", "/ml.slice"), "/ml.slice", ""),
        (("", "/ml.slice"), "", ""),
        (("",), "/ml.slice", "ml.slice"),
        (("",), "/ml.slice/ml-train.slice", "ml.slice"),
        (("",), "/machine.slice", ""),
        ((), "/machine.slice", "the root slice"),
        ((), None, ""),
    ],
)
def test_cpu_controller_is_not_newly_enabled_above_containers(
    tmp_path: Path, enabled: tuple[str, ...], container: Optional[str], where: str
) -> None:
    root = tree(tmp_path, "cpu memory", *enabled)
    if container is not None:
        os.makedirs(f"{root}{container}/docker-{ID}.scope")
    why = why_no_cpu_limit(Told(RUNS), A, root)
    assert (f"controller in {where} first" in why) if where else why == ""


def test_no_cpu_limit_where_it_would_mean_nothing(tmp_path: Path) -> None:
    root = tree(tmp_path, "memory pids")
    assert "no cpu controller" in why_no_cpu_limit(Told(RUNS), A, root)
    (tmp_path / "cgroup.controllers").unlink()
    assert "cgroup v2" in why_no_cpu_limit(Told(RUNS), A, root)
    assert "does not run" in why_no_cpu_limit(Told(RawUnit(A, "loaded", "failed")), A, root)


def test_no_cpu_limit_while_nobody_can_tell_what_is_enabled(tmp_path: Path) -> None:
    root = tree(tmp_path, "cpu")
    (tmp_path / "cgroup.subtree_control").unlink()
    with pytest.raises(SourceError, match="which controllers / has"):
        why_no_cpu_limit(Told(RUNS), A, root)


class Keeper(Told):
    """A systemd that makes of each limit what `becomes` says; an error is raised instead."""

    def __init__(self, becomes: Union[CpuLimit, SourceError]) -> None:
        super().__init__(RUNS)
        self._becomes, self.written = becomes, 0

    def limit_now(self, name: str) -> CpuLimit:
        if not self.written:
            return CpuLimit()
        if isinstance(self._becomes, SourceError):
            raise self._becomes
        return self._becomes

    def write_limit(self, name: str, before: CpuLimit, after: CpuLimit) -> None:
        self.written += 1


def test_a_cpu_limit_is_read_back(tmp_path: Path) -> None:
    """A9."""
    root, half = tree(tmp_path, "cpu"), CpuLimit(500_000)
    change_limit(Keeper(half), A, half, root)
    with pytest.raises(ActionError, match="took another") as caught:
        change_limit(Keeper(CpuLimit(490_000)), A, half, root)
    assert not caught.value.unknown
    with pytest.raises(ActionError, match="read back") as caught:
        change_limit(Keeper(SourceError("silence")), A, half, root)
    assert caught.value.unknown


@pytest.mark.parametrize(
    "said, kernel, freezer",
    [
        ("running", 0, "running"),
        ("frozen", 1, "frozen"),
        ("freezing", 0, "freezing"),
        ("frozen", 0, "running"),  # killed while frozen, and started again
        ("running", 1, "frozen"),  # somebody wrote cgroup.freeze
        ("frozen-by-parent", 1, "frozen"),
        ("frozen", None, "frozen"),
        ("", None, ""),
    ],
)
def test_whether_a_unit_is_frozen_is_the_kernels_word(
    tmp_path: Path, said: str, kernel: Optional[int], freezer: str
) -> None:
    root = tree(tmp_path, "cpu")
    if kernel is not None:
        Path(f"{root}{GROUP}/cgroup.events").write_text(f"populated 1\nfrozen {kernel}\n")
    assert gather(Told(replace(RUNS, freezer=said)), A, root).freezer == freezer
    ended = replace(RUNS, freezer=said, active_state="failed", control_group="")
    assert gather(Told(ended), A, root).freezer == ""


def test_a_control_group_is_asked_for_once_and_when_it_is_gone(tmp_path: Path) -> None:
    units, asked, groups = UnitList(str(tmp_path)), [], {A: "/x.slice/a.service", "b.service": "", "c.socket": "/c"}
    os.makedirs(f"{tmp_path}/x.slice/a.service")

    def ask(names: Sequence[str]) -> Iterator[tuple[str, str]]:
        asked.append(list(names))
        yield from ((name, groups[name]) for name in names)

    def answer(**more: str) -> list[tuple[str, str, str]]:
        states = {A: "active", "b.service": "activating", "c.socket": "active", "d.service": "failed", **more}
        return [(each.name, each.active_state, each.control_group) for each in units.answer(states, ("*.s*",), ask)]

    assert answer() == [(A, "active", "/x.slice/a.service"), ("b.service", "activating", "")]
    answer()
    os.rmdir(f"{tmp_path}/x.slice/a.service")  # it came back in another slice
    groups[A] = "/y.slice/a.service"
    assert answer()[0] == (A, "active", "/y.slice/a.service")
    assert asked == [[A, "b.service"], ["b.service"], [A, "b.service"]]


def test_control_groups_learnt_before_an_error_stay_known(tmp_path: Path) -> None:
    units, asked = UnitList(str(tmp_path)), []
    os.makedirs(f"{tmp_path}/a.service")

    def ask(names: Sequence[str]) -> Iterator[tuple[str, str]]:
        for name in names:
            asked.append(name)
            if name == "b.service" and asked.count(name) == 1:
                raise SourceError("too slow")
            yield name, f"/{name}"

    states = {A: "active", "b.service": "active"}
    with pytest.raises(SourceError):
        units.answer(states, ("*.service",), ask)
    units.answer(states, ("*.service",), ask)
    assert asked == [A, "b.service", "b.service"]


def test_nothing_is_frozen_without_the_unified_hierarchy(tmp_path: Path) -> None:
    hybrid = tmp_path / "unified"
    hybrid.mkdir()
    assert not unified_hierarchy(str(tmp_path))
    (tmp_path / "cgroup.controllers").touch()
    (hybrid / "cgroup.controllers").touch()
    assert unified_hierarchy(str(tmp_path))
    assert not unified_hierarchy(str(hybrid))
    for way in (
        SystemdBus("unix:path=/nowhere", cgroup_root=str(hybrid)),
        SystemctlFallback(("/bin/true",), cgroup_root=str(hybrid)),
    ):
        with pytest.raises(ActionError, match="cgroup v2"):
            way.freeze_unit(A)
