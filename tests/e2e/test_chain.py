"""The main job on the installed product: a hot GPU, evidence, a stopped unit, messages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.nvml.scenario import uuid
from tests.lab.gpu_host import GpuHost
from tests.lab.waiting import wait_for

GPU = 3
COOL, HOT = 60, 94  # shutdown at 95: an H100's maximum of 87 plus 8
FOR_S = 2

CONFIG = """
mode: {mode}
language: {language}
workloads:
  - name: training
    units: ["burner@*.service", "always@*.service", "stubborn@*.service"]
rules:
  - name: gpu-critical
    metric: gpu.shutdown_margin
    below: 2
    for: {for_s}s
    clear: {{above: 8, for: 2s}}
    severity: critical
    ladder: [{{do: [stop]}}]
  - {{name: gpu-hot, enabled: false}}
"""
DEPENDS = """[Unit]
Requires=burner@3.service
After=burner@3.service
[Service]
ExecStart=/bin/sleep 1000
"""
END_STATES = {"verified", "withdrawn", "refused", "failed", "unknown", "would_have"}


def started(host: GpuHost, mode: str = "enforce", language: str = "en") -> GpuHost:
    """gpuwatch running with the configuration above."""
    host.configure(CONFIG.format(mode=mode, language=language, for_s=FOR_S))
    host.configure_robot()
    host.scenario.heat(GPU, COOL)
    host.start()
    return host


def ended(action: Any) -> bool:
    return action["state"] in END_STATES


def told(host: GpuHost, rule: str) -> dict[str, str]:
    """Spooled notifications of the rule's incident: transition/channel -> state."""
    notifications: dict[str, str] = host.incident(rule)["notifications"]
    return {key.split("/", 1)[1]: state for key, state in notifications.items()}


@pytest.mark.parametrize("unit", ["burner@3.service", "always@3.service", "stubborn@3.service"])
def test_hot_gpu_stops_the_unit_with_evidence_first_and_tells_once(host: GpuHost, unit: str) -> None:
    started(host)
    host.burn(unit)
    host.scenario.heat(GPU, HOT)
    action = host.action("gpu-critical", ended, timeout_s=60)
    assert (action["state"], action["target"]) == ("verified", unit)
    assert host.container.show(unit, "ActiveState")["ActiveState"] in ("inactive", "failed")
    assert action["preserved"]["boottime_s"] <= action["sent"]["boottime_s"]
    host.gpuwatch("evidence", "verify", action["bundle"])
    assert [name for name in host.bundles() if name.startswith(".") or "tmp" in name] == []

    host.scenario.heat(GPU, COOL)
    wait_for(lambda: "resolved/ops" in told(host, "gpu-critical"), 30, "resolved is spooled", every_s=0.3)
    wait_for(lambda: set(told(host, "gpu-critical").values()) == {"delivered"}, 30, "all delivered", every_s=0.3)
    names = sorted(told(host, "gpu-critical"))
    assert names in (["firing/ops", "resolved/ops"], ["firing/ops", "resolved/ops", "update/ops"])
    assert len(host.robot.texts()) == len(names)
    assert unit in "".join(host.robot.texts())
    mentions = [message["text"] for message in host.robot.messages if message["msgtype"] == "text"]
    assert mentions
    assert mentions[0]["mentioned_list"] == ["@all"]


def test_observe_stops_nothing_and_says_what_it_would_have_done(host: GpuHost) -> None:
    started(host, mode="observe")
    pid = host.burn("burner@3.service")
    host.scenario.heat(GPU, HOT)
    action = host.action("gpu-critical", ended)
    assert (action["state"], action["observe"]) == ("would_have", True)
    assert host.container.show("burner@3.service", "MainPID") == {"MainPID": str(pid)}
    wait_for(lambda: "would have" in "".join(host.robot.texts()).lower(), 45, "the message says so", every_s=0.3)


def test_chinese_messages(host: GpuHost) -> None:
    started(host, language="zh")
    host.burn("burner@3.service")
    host.scenario.heat(GPU, HOT)
    wait_for(lambda: any("一" <= char <= "鿿" for char in "".join(host.robot.texts())), 20, every_s=0.3)


def test_no_secret_leaves_the_credential(host: GpuHost) -> None:
    started(host)
    host.burn("burner@3.service")
    host.scenario.heat(GPU, HOT)
    wait_for(host.robot.texts, 30, "a message arrives", every_s=0.3)
    found = host.container.sh(
        f"grep -rlaF {host.robot.key} /var/lib/gpuwatch /run/gpuwatch /proc/[0-9]*/cmdline /proc/[0-9]*/environ"
        " 2>/dev/null | grep -v '/proc/self/' || true"
    ).stdout
    assert [line for line in found.splitlines() if "/proc/" not in line] == []
    assert host.robot.key not in host.container.journal("-u", "gpuwatch.service")


# -- who is never touched ----------------------------------------------------------------------


def test_unlisted_unit_is_left_alone(host: GpuHost) -> None:
    started(host)
    host.container.run(
        "systemd-run", "--quiet", "--unit=stranger", "--property=ExecStopPost=/usr/local/bin/burner leave 3 -",
        "/usr/local/bin/burner", "run", "3", "plain",
    )  # fmt: skip
    try:
        wait_for(lambda: f"{GPU}.compute" in host.scenario.path.read_text("utf-8"))
        host.scenario.heat(GPU, HOT)
        wait_for(lambda: "no_workload" in host.reasons("gpu-critical"), 20, "the reason is logged", every_s=0.3)
        assert host.container.show("stranger.service", "ActiveState")["ActiveState"] == "active"
    finally:
        host.container.run("systemctl", "stop", "stranger.service")


def test_session_scope_is_left_alone(host: GpuHost) -> None:
    started(host)
    scope = [
        "systemd-run",
        "--quiet",
        "--scope",
        "--unit=session-7.scope",
        "/usr/local/bin/burner",
        "run",
        "3",
        "plain",
    ]
    host.container.sh(f"setsid {' '.join(scope)} >/dev/null 2>&1 </dev/null &")
    try:
        wait_for(lambda: f"{GPU}.compute" in host.scenario.path.read_text("utf-8"))
        host.scenario.heat(GPU, HOT)
        wait_for(lambda: "no_workload" in host.reasons("gpu-critical"), 20, "the reason is logged", every_s=0.3)
        assert host.container.show("session-7.scope", "ActiveState")["ActiveState"] == "active"
    finally:
        host.container.sh("systemctl stop session-7.scope; /usr/local/bin/burner leave 3 -")


def test_unit_that_others_require_is_refused_with_its_reason(host: GpuHost) -> None:
    started(host)
    host.burn("burner@3.service")
    host.container.write("/etc/systemd/system/depends.service", DEPENDS)
    host.container.run("systemctl", "start", "depends.service")
    try:
        host.scenario.heat(GPU, HOT)
        action = host.action("gpu-critical", ended)
        assert (action["state"], action["reason"]) == ("refused", "takes_along")
        assert "depends.service" in action["detail"]
        assert host.container.show("burner@3.service", "ActiveState")["ActiveState"] == "active"
    finally:
        host.container.run("systemctl", "stop", "depends.service")


@pytest.mark.parametrize("unit", ["system.slice", "session-1.scope", "sshd.service", "dbus.service"])
def test_configuration_refuses_what_is_never_touched(host: GpuHost, unit: str) -> None:
    host.configure(f"workloads:\n  - name: wrong\n    units: [{unit}]\n")
    done = host.container.run("gpuwatch", "config", "check", check=False)
    assert done.returncode == 78
    assert "lab.yaml:3:" in done.stdout + done.stderr
    assert unit in done.stdout + done.stderr


def test_process_list_with_an_impossible_pid_stops_nothing(host: GpuHost) -> None:
    started(host)
    pid = host.burn("burner@3.service")
    host.scenario.processes(GPU, [(pid, 1 << 30), (4294967295, 1 << 30)])
    host.scenario.heat(GPU, HOT)
    wait_for(lambda: "attribution_unknown" in host.reasons("gpu-critical"), 20, "the reason is logged", every_s=0.3)
    assert host.container.show("burner@3.service", "ActiveState")["ActiveState"] == "active"
    assert host.incident("gpu-critical")["incident"]["subject"]["id"] == uuid(GPU)


# -- what a crash leaves behind ----------------------------------------------------------------


@pytest.mark.parametrize("after", ["preserved", "sent"])
def test_killed_in_the_middle_it_carries_on_and_repeats_nothing(host: GpuHost, after: str) -> None:
    """kill -9 as soon as the evidence is durable, or the stop is requested; systemd starts it again."""
    started(host)
    host.burn("stubborn@3.service")  # takes three seconds to die
    host.scenario.heat(GPU, HOT)
    host.action("gpu-critical", lambda action: action[after] is not None, timeout_s=20)
    host.container.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", "gpuwatch.service")
    wait_for(lambda: host.container.show("gpuwatch.service", "NRestarts")["NRestarts"] == "1", 20, every_s=0.2)
    action = host.action("gpu-critical", ended, timeout_s=60)
    assert action["state"] == "verified"
    shown = host.incident("gpu-critical")
    assert len(shown["actions"]) == 1
    assert host.bundles() == [action["bundle"]]
    host.gpuwatch("evidence", "verify", action["bundle"])
    host.scenario.heat(GPU, COOL)
    wait_for(lambda: set(told(host, "gpu-critical").values()) == {"delivered"}, 60, "all delivered", every_s=0.3)
    firing = [text for text in host.robot.texts() if "critical" in text]
    assert 1 <= len(firing) <= 2  # the one that was being sent may come twice
