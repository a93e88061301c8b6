"""What only a booted systemd can show: dependencies, cgroups, a bus that dies, a bus that hangs."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.model.errors import ActionError, SourceError
from gpuwatch.system.protocols import CpuLimit, ListedUnit, Systemd
from gpuwatch.system.systemctl import SystemctlFallback
from gpuwatch.system.systemd import FailoverSystemd, NoAnswer, SystemdBus, Unreachable
from tests.conftest import refuse
from tests.contract.systemd_worlds import CpuTree, RealWorld, answering, bus_of, systemctl_of
from tests.lab.hung_disk import stuck_process
from tests.lab.nspawn import Container
from tests.lab.refusal import why_no_booted_systemd, why_no_command
from tests.lab.roots import ready_root
from tests.lab.waiting import wait_for

SLEEP = "ExecStart=/bin/sleep 1000\n"


@pytest.fixture
def world(booted: Container) -> Iterator[RealWorld]:
    real = RealWorld(booted, bus_of(booted))
    try:
        yield real
    finally:
        real.clear()
        real.systemd.close()


def active(container: Container, *names: str) -> set[str]:
    return {name for name in names if container.show(name, "ActiveState")["ActiveState"] == "active"}


@pytest.mark.parametrize(
    "dependency, goes_along",
    [
        ("Requires={}", True),
        ("BindsTo={}", True),
        ("PartOf={}", True),
        ("Requisite={}", True),
        ("StopPropagatedFrom={}", True),
        ("Wants={}", False),
        ("After={}", False),
        ("Upholds={}", False),
    ],
)
def test_takes_along_is_what_systemd_really_stops(world: RealWorld, dependency: str, goes_along: bool) -> None:
    kind = dependency.split("=")[0].lower()
    target, other, third = f"ta-{kind}.service", f"ta-{kind}-other.service", f"ta-{kind}-third.service"
    world.install(target, "", SLEEP)
    world.install(other, dependency.format(target) + f"\nAfter={target}\n", SLEEP)
    world.install(third, f"PartOf={other}\n", SLEEP)
    expected = (other, third) if goes_along else ()
    assert world.systemd.unit(target).takes_along == expected
    assert systemctl_of(world.container).unit(target).takes_along == expected
    world.container.run("systemctl", "stop", target)
    assert active(world.container, other, third) == {other, third} - set(expected)


def test_takes_along_ends_at_a_unit_that_does_not_run(world: RealWorld) -> None:
    world.install("through-a.service", "", SLEEP)
    world.install("through-b.service", "Requires=through-a.service\n", "ExecStart=/bin/true\n")
    world.install("through-c.service", "Requires=through-b.service\n", SLEEP)
    wait_for(lambda: not world.systemd.unit("through-b.service").running)
    assert active(world.container, "through-c.service")  # B ended by itself, which leaves C running
    assert world.systemd.unit("through-a.service").takes_along == ()
    world.container.run("systemctl", "stop", "through-a.service")
    assert active(world.container, "through-c.service")


def test_a_target_counts_only_where_it_requires_the_unit(world: RealWorld) -> None:
    world.install("of-target.service", "", SLEEP)
    world.container.write("/run/systemd/system/wanting.target", "[Unit]\nWants=of-target.service\n")
    world.container.write("/run/systemd/system/requiring.target", "[Unit]\nRequires=of-target.service\n")
    world.container.run("systemctl", "start", "wanting.target", "requiring.target")
    try:
        assert world.systemd.unit("of-target.service").takes_along == ("requiring.target",)
        world.container.run("systemctl", "stop", "of-target.service")
        assert active(world.container, "wanting.target", "requiring.target") == {"wanting.target"}
    finally:
        world.container.sh("systemctl stop wanting.target; rm /run/systemd/system/*ing.target; systemctl daemon-reload")


def test_an_alias_is_known_by_its_real_name(world: RealWorld) -> None:
    world.install("real-name.service", "", SLEEP)
    world.container.sh("ln -s real-name.service /run/systemd/system/other-name.service; systemctl daemon-reload")
    assert world.systemd.unit("other-name.service").name == "real-name.service"
    assert systemctl_of(world.container).unit("other-name.service").name == "real-name.service"


def test_a_scope_has_no_main_process(world: RealWorld) -> None:
    world.container.sh("systemd-run --quiet --scope --unit=plain-scope sleep 1000 >/dev/null 2>&1 & sleep 0.1")
    wait_for(lambda: world.systemd.unit("plain-scope.scope").running)
    facts = world.systemd.unit("plain-scope.scope")
    assert facts == systemctl_of(world.container).unit("plain-scope.scope")
    assert (facts.main_pid, facts.control_group) == (0, "/system.slice/plain-scope.scope")
    world.systemd.stop_unit("plain-scope.scope")
    wait_for(lambda: not world.systemd.unit("plain-scope.scope").running)


def test_an_unlimited_stop_time_out(world: RealWorld) -> None:
    world.install("patient.service", "", SLEEP + "TimeoutStopSec=infinity\n")
    assert world.systemd.unit("patient.service").stop_timeout_s is None
    assert systemctl_of(world.container).unit("patient.service").stop_timeout_s is None
    world.install("mixed.service", "", SLEEP + "TimeoutStopSec=1h 2min 3s 4ms\n")
    assert world.systemd.unit("mixed.service").stop_timeout_s == pytest.approx(3723.004)
    assert systemctl_of(world.container).unit("mixed.service").stop_timeout_s == pytest.approx(3723.004)


def test_containers_and_units_below_its_own_cgroup_are_seen(world: RealWorld) -> None:
    world.install("delegated.service", "", SLEEP + "Delegate=yes\n")
    own = world.systemd.unit("delegated.service").control_group
    container = f"{own}/docker/{'0123456789abcdef' * 4}"
    world.container.sh(f"mkdir -p /sys/fs/cgroup{container} /sys/fs/cgroup{own}/init.scope")
    facts = world.systemd.unit("delegated.service")
    assert facts.containers == (container,)
    assert facts.inner_units == (f"{own}/init.scope",)


def test_a_cgroup_that_cannot_be_seen_is_an_error_not_an_empty_one(world: RealWorld, tmp_path: Path) -> None:
    world.install("unseen.service", "", SLEEP)
    blind = SystemdBus(world.container.bus_address, cgroup_root=str(tmp_path))
    with pytest.raises(SourceError, match="can't look into cgroup"):
        blind.unit("unseen.service")
    blind.close()


@pytest.mark.parametrize("way", [bus_of, systemctl_of])
def test_a_cpu_limit_leaves_a_drop_in_but_never_reloads(
    booted: Container, tmp_path: Path, way: Callable[[Container, CpuTree], Systemd]
) -> None:
    """S13. What was never written leaves nothing; what was put back stays as it was, in a file that says the same."""
    tree = CpuTree(tmp_path, booted)
    world = RealWorld(booted, way(booted, tree), tree)
    name = f"{way.__name__.replace('_', '-')}-limit.service"
    world.install(name, "", SLEEP + "CPUQuota=80%\n")
    cursor = booted.run("journalctl", "--show-cursor", "-n", "0").stdout.split("cursor: ")[1].strip()
    try:
        before = world.systemd.cpu_limit(name)
        assert before == CpuLimit(800_000)
        world.systemd.set_cpu_limit(name, before)
        assert booted.show(name, "DropInPaths")["DropInPaths"] == "", "what holds already is not written"
        world.systemd.set_cpu_limit(name, CpuLimit(250_000))
        world.systemd.set_cpu_limit(name, before)
        shown = booted.show(name, "CPUQuotaPerSecUSec", "CPUWeight", "DropInPaths", "NeedDaemonReload")
        left = f"/run/systemd/system.control/{name}.d/50-CPUQuota.conf"
        expected = {"CPUQuotaPerSecUSec": "800ms", "CPUWeight": "[not set]", "DropInPaths": left}
        assert shown == {**expected, "NeedDaemonReload": "no"}
        text = (booted.root / left.lstrip("/")).read_text().splitlines()
        assert text[-1] in ("CPUQuota=80%", "CPUQuota=80.00%")
        world.systemd.set_cpu_limit(name, CpuLimit(None, 0))
        world.systemd.set_cpu_limit(name, CpuLimit())
        text = (booted.root / left.lstrip("/")).read_text().splitlines()
        assert text[-2:] == ["[Service]", "CPUQuota="]
        assert "Reloading" not in booted.journal("--after-cursor", cursor, "_PID=1", check=True)
    finally:
        world.clear()
        world.systemd.close()


def test_scopes_are_listed_and_other_kinds_are_not(world: RealWorld) -> None:
    world.container.sh("systemd-run --quiet --scope --unit=listed sleep 1000 >/dev/null 2>&1 & sleep 0.1")
    wait_for(lambda: world.systemd.unit("listed.scope").running)
    expected = (ListedUnit("listed.scope", "active", "/system.slice/listed.scope"),)
    for way in (world.systemd, systemctl_of(world.container)):
        assert way.units(("listed.*",)) == expected
        assert way.units(("dbus.socket", "system.slice", "multi-user.target")) == ()
        names = [unit.name for unit in way.units(("*",))]
        assert "listed.scope" in names and all(name.endswith((".service", ".scope")) for name in names)
    world.systemd.stop_unit("listed.scope")


def test_a_unit_that_comes_back_in_another_slice_is_listed_there(world: RealWorld) -> None:
    world.install("moved.service", "", SLEEP)
    ways = (world.systemd, systemctl_of(world.container))
    assert {way.units(("moved.service",))[0].control_group for way in ways} == {"/system.slice/moved.service"}
    world.install("moved.service", "", SLEEP + "Slice=other.slice\n", start=False)
    world.container.sh("systemctl daemon-reload; systemctl restart moved.service")
    assert {way.units(("moved.service",))[0].control_group for way in ways} == {"/other.slice/moved.service"}


def test_a_process_in_state_d_keeps_its_unit_from_being_frozen(booted: Container, tmp_path: Path) -> None:
    """The answer never comes; what is under way can be seen, and taken back."""
    refuse(why_no_command("mke2fs", "fsfreeze"))
    bus, systemctl = bus_of(booted, timeout_s=0.5), systemctl_of(booted, timeout_s=0.5)
    world = RealWorld(booted, bus)
    world.install("stuck.service", "", SLEEP)
    (tmp_path / "file").touch()
    try:
        with stuck_process(tmp_path, tmp_path / "file") as pid:
            (booted.root / "sys/fs/cgroup/system.slice/stuck.service/cgroup.procs").write_text(str(pid))
            for way in (bus, systemctl):
                with pytest.raises(ActionError) as caught:
                    way.freeze_unit("stuck.service")
                assert caught.value.unknown
                assert way.unit("stuck.service").freezer == "freezing"
                way.thaw_unit("stuck.service")
                assert way.unit("stuck.service").freezer == "running"
    finally:
        world.clear()
        bus.close()


def test_a_unit_that_was_killed_frozen_is_not_frozen_when_it_runs_again(world: RealWorld) -> None:
    world.install("again.service", "", SLEEP)
    world.systemd.freeze_unit("again.service")
    world.systemd.kill_unit("again.service", signal.SIGKILL)
    world.until("again.service", "failed")
    world.container.sh("systemctl reset-failed again.service; systemctl start again.service")
    for way in (world.systemd, systemctl_of(world.container)):
        assert way.unit("again.service").freezer == "running"
    world.systemd.freeze_unit("again.service")
    assert world.systemd.unit("again.service").freezer == "frozen"
    world.systemd.thaw_unit("again.service")


def test_this_systemd_thaws_what_it_stops(world: RealWorld) -> None:
    """Up to 255; 257 leaves it frozen, so callers thaw first (protocols.Systemd.thaw_unit)."""
    world.install("cold.service", "", answering('"exit 0"'))
    world.systemd.freeze_unit("cold.service")
    world.systemd.stop_unit("cold.service")
    world.until("cold.service", "inactive")


@pytest.fixture(scope="module")
def own_container() -> Iterator[Container]:
    """One whose bus may be broken."""
    refuse(why_no_booted_systemd())
    with Container(ready_root()) as container:
        yield container


def test_a_connection_found_dead_is_made_anew(own_container: Container) -> None:
    world = RealWorld(own_container, bus_of(own_container))
    world.install("survivor.service", "", SLEEP)
    assert world.systemd.unit("survivor.service").running
    own_container.run("systemctl", "restart", "dbus.service")
    # PID 1 needs a moment to be on the new bus; the first question already goes over a new connection.
    wait_for(lambda: own_container.run("busctl", "status", "org.freedesktop.systemd1", check=False).returncode == 0)
    assert world.systemd.unit("survivor.service").running
    own_container.run("systemctl", "restart", "dbus.service")
    wait_for(lambda: own_container.run("busctl", "status", "org.freedesktop.systemd1", check=False).returncode == 0)
    world.systemd.stop_unit("survivor.service")
    world.until("survivor.service", "inactive")
    world.clear()
    world.systemd.close()


def test_without_a_bus_systemctl_takes_over(own_container: Container, tmp_path: Path) -> None:
    """For all but freeze and thaw."""
    tree = CpuTree(tmp_path, own_container)
    bus, systemctl = bus_of(own_container, tree), systemctl_of(own_container, tree)
    world = RealWorld(own_container, FailoverSystemd(bus, systemctl), tree)
    world.install("busless.service", "", SLEEP)
    own_container.run("systemctl", "stop", "dbus.socket", "dbus.service")
    try:
        with pytest.raises(NoAnswer):
            bus.unit("busless.service")
        with pytest.raises(NoAnswer):
            bus.units(("busless.service",))
        for ask in (bus.stop_unit, bus.freeze_unit, bus.thaw_unit, _halve(bus)):
            with pytest.raises(Unreachable):
                ask("busless.service")
        assert world.systemd.units(("busless.*",)) == (
            ListedUnit("busless.service", "active", "/system.slice/busless.service"),
        )
        world.systemd.set_cpu_limit("busless.service", CpuLimit(500_000))
        assert world.systemd.cpu_limit("busless.service") == CpuLimit(500_000)
        for act in (world.systemd.freeze_unit, world.systemd.thaw_unit):
            with pytest.raises(ActionError, match="connect to") as caught:
                act("busless.service")
            assert not caught.value.unknown
        assert world.systemd.unit("busless.service").running
        world.systemd.kill_unit("busless.service", signal.SIGCONT)
        world.systemd.stop_unit("busless.service")
        world.until("busless.service", "inactive")
    finally:
        own_container.run("systemctl", "start", "dbus.socket")
        world.clear()
        world.systemd.close()


def _halve(systemd: Systemd) -> Callable[[str], None]:
    return lambda name: systemd.set_cpu_limit(name, CpuLimit(500_000))


class HungBus:
    """Accepts connections and says `words`, then nothing."""

    def __init__(self, path: Path, *words: bytes) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(8)
        self._words, self._open = words, [self._listener]
        self.accepted = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._open.append(peer)
            for words in self._words:
                peer.recv(4096)
                peer.sendall(words)

    def close(self) -> None:
        for each in self._open:
            each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.mark.parametrize("words", [(), (b"OK 0123456789abcdef\r\n",)])
def test_a_bus_that_hangs_costs_its_time_out_and_no_more(tmp_path: Path, words: tuple[bytes, ...]) -> None:
    hung = HungBus(tmp_path / "bus", *words)
    bus = SystemdBus(f"unix:path={tmp_path}/bus", timeout_s=0.2)
    other = SystemctlFallback(("/bin/false",))
    both = FailoverSystemd(bus, other)
    began = time.monotonic()
    with pytest.raises(NoAnswer):
        bus.unit("a.service")
    with pytest.raises(Unreachable):  # Hello was not answered, so StopUnit was not sent
        bus.stop_unit("a.service")
    with pytest.raises(SourceError):
        both.unit("a.service")
    assert time.monotonic() - began < 2.0
    before = hung.accepted
    with pytest.raises(ActionError):
        both.stop_unit("a.service")
    assert hung.accepted == before  # left alone for a while
    hung.close()


def test_no_socket_at_all(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match="no such file"):
        SystemdBus(f"unix:path={tmp_path}/none").unit("a.service")
    with pytest.raises(NoAnswer, match="not the address"):
        SystemdBus("tcp:host=127.0.0.1").unit("a.service")


def test_a_stop_whose_answer_never_comes_is_unknown(tmp_path: Path, own_container: Container) -> None:
    """PID 1 is stopped like a hung one: the bus takes the request, nobody answers it.

    When it wakes up it does not serve a sender that has hung up, so a stop that nobody may want any
    more does not come minutes late.
    """
    bus = SystemdBus(own_container.bus_address, timeout_s=0.5, cgroup_root=f"{own_container.root}/sys/fs/cgroup")
    world = RealWorld(own_container, bus)
    world.install("asked.service", "", SLEEP)
    assert bus.unit("asked.service").running
    os.kill(own_container.leader, signal.SIGSTOP)
    try:
        with pytest.raises(ActionError) as caught:
            bus.stop_unit("asked.service")
        assert caught.value.unknown
    finally:
        os.kill(own_container.leader, signal.SIGCONT)
    wait_for(lambda: _answers(bus))
    assert bus.unit("asked.service").active_state == "active"
    world.clear()
    bus.close()


def _answers(bus: SystemdBus) -> bool:
    try:
        return bus.unit("asked.service").running
    except SourceError:
        return False
