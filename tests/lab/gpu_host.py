"""A GPU server in a container: gpuwatch's package installed by apt, a fake driver library, workloads, kernel lines.

gpuwatch runs under its own unit file. What a drop-in changes is only what a machine without a driver lacks:
/proc/driver/nvidia appears, and its /dev/kmsg is another FIFO than journald's (a record reaches one reader only). And
what a container is special in: its boot id is a mount, which ProtectKernelTunables= would hide.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Optional

from tests.fakes.nvml.scenario import Scenario, Value
from tests.lab.apt import apt_install
from tests.lab.kmsg import KernelLog
from tests.lab.nspawn import Container
from tests.lab.waiting import wait_for
from tests.lab.wecom import Robot

NVIDIA_MAJOR = 195  # fixed by the driver
CTL_MINOR = 255
DOORBELL = "/srv/lab/doorbell"
DROP_IN = f"""[Service]
BindReadOnlyPaths=/srv/lab/proc-driver:/proc/driver
BindPaths={DOORBELL}:/dev/kmsg
BindReadOnlyPaths=/srv/lab/boot_id:/proc/sys/kernel/random/boot_id
LoadCredential=wecom-ops:/etc/gpuwatch/wecom-ops.key
"""
ROBOT = """alerts:
  channels:
    - {name: ops, type: wecom, key: {credential: wecom-ops}, url: "URL", mention: ["@all"]}
"""
# Both have only just started in every test.
NO_GRACE = "grace: {start: 0s, boot: 0s}\n"
# A workload that is on a GPU: it enters itself into the scenario when it starts, and is taken out when it has ended.
BURNER = """#!/usr/bin/python3
import fcntl, os, signal, sys, time
what, gpu, how = sys.argv[1], sys.argv[2], sys.argv[3]
PATH = "/etc/fakenvml.conf"
def enter(line):
    with open(PATH + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = [each for each in open(PATH).read().splitlines() if not each.startswith(gpu + ".compute =")]
        with open(PATH + ".new", "w") as fresh:
            fresh.write("\\n".join(kept + line) + "\\n")
        os.replace(PATH + ".new", PATH)
if what == "leave":
    enter([])
    sys.exit()
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
enter([gpu + ".compute = " + str(os.getpid()) + ":32212254720"])
while True:
    time.sleep(3600)
"""
WORKLOADS = {
    "burner@.service": ("plain", "TimeoutStopSec=20"),
    "always@.service": ("plain", "Restart=always\nRestartSec=1\nTimeoutStopSec=20"),
    "stubborn@.service": ("stubborn", "TimeoutStopSec=3"),
}


class SharedScenario(Scenario):
    """A scenario that burners write too: a change reads the file again, under their lock, and keeps their lines."""

    def __init__(self, path: Path, count: int = 8) -> None:
        self._ours: set[str] = set()  # process lists that a test has set
        super().__init__(path, count)

    def set(self, key: str, value: Optional[Value]) -> None:
        self._ours.add(key)
        super().set(key, value)

    def heat(self, index: int, celsius: int, max_operating: int = 87) -> None:
        """The memory gets as hot: a core that is hot alone is not believed."""
        self.lines[f"{index}.memory_temperature"] = str(celsius)
        super().heat(index, celsius, max_operating)

    def write(self) -> None:
        with self.path.with_name(self.path.name + ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._take_over_burners()
            super().write()

    def _take_over_burners(self) -> None:
        written = self.path.read_text("utf-8").splitlines() if self.path.exists() else []
        entered = {key: value for key, _, value in (line.partition(" = ") for line in written) if _is_list(key)}
        for key in [key for key in self.lines if _is_list(key) and key not in self._ours]:
            del self.lines[key]
        self.lines.update({key: value for key, value in entered.items() if key not in self._ours})


def _is_list(key: str) -> bool:
    return key.endswith(".compute")


class GpuHost:
    """See the module. One lives as long as the test session; reset() before each test."""

    def __init__(self, root: Path, deb: Path, library: Path, robot: Robot, place: Path) -> None:
        self.robot = robot
        self.doorbell = KernelLog(place / "doorbell", wait=False)
        self.container = Container(root, binds=[f"{self.doorbell.path}:{DOORBELL}"])
        self._deb, self._library = deb, library
        self._cursor = ""  # of the journal, at the last reset
        self.scenario: Scenario

    @contextmanager
    def running(self) -> Iterator[GpuHost]:
        """Boot, install, and stop at the end."""
        with self.container:
            self._furnish()
            self.installed_saying = apt_install(self.container, self._deb)
            yield self
        self.doorbell.close()

    def _furnish(self) -> None:
        """What the machine has before gpuwatch is installed."""
        box = self.container
        lib = f"/usr/lib/{os.uname().machine}-linux-gnu/libnvidia-ml.so.1"
        shutil.copyfile(self._library, box.root / lib.lstrip("/"))
        box.run("ldconfig")
        box.write("/srv/lab/proc-driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06\n")
        box.sh("cat /proc/sys/kernel/random/boot_id >/srv/lab/boot_id")
        box.run("mknod", "-m", "0666", "/dev/nvidiactl", "c", str(NVIDIA_MAJOR), str(CTL_MINOR))
        assert stat.S_ISCHR((box.root / "dev/nvidiactl").stat().st_mode)
        box.write("/etc/systemd/system/gpuwatch.service.d/lab.conf", DROP_IN)
        box.write("/etc/systemd/system/gpuwatch-once.service.d/lab.conf", DROP_IN)
        box.write("/etc/gpuwatch/wecom-ops.key", self.robot.key + "\n", 0o600)
        box.write("/usr/local/bin/burner", BURNER, 0o755)
        for name, (how, more) in WORKLOADS.items():
            box.write(
                f"/etc/systemd/system/{name}",
                f"[Service]\nExecStart=/usr/local/bin/burner run %i {how}\n"
                f"ExecStopPost=/usr/local/bin/burner leave %i -\n{more}\n",
            )
        self._fresh_scenario()

    def _fresh_scenario(self) -> None:
        path = self.container.root / "etc/fakenvml.conf"
        path.unlink(missing_ok=True)
        self.scenario = SharedScenario(path)
        self.scenario.set_path.unlink(missing_ok=True)
        self.scenario.set("device", "/dev/nvidiactl")
        self.scenario.set("*.utilisation", "98 60")  # the heat of a card that works is believed
        self.scenario.set("*.power", 612000)

    def reset(self) -> None:
        """As freshly installed, with nothing running: no state, no evidence, cool GPUs, no workload."""
        box = self.container
        box.sh(
            "systemctl stop gpuwatch.service gpuwatch-once.timer gpuwatch-once.service"
            " 'burner@*' 'always@*' 'stubborn@*';"
            " systemctl reset-failed; rm -rf /var/lib/gpuwatch/* /run/gpuwatch/* /etc/gpuwatch/conf.d/*"
        )
        self._fresh_scenario()
        self.configure(NO_GRACE, "no-grace.yaml")
        shown = box.run("journalctl", "-q", "-n", "0", "--show-cursor").stdout
        self._cursor = shown.partition("-- cursor: ")[2].strip()
        self.robot.messages.clear()
        self.robot.errcode = 0

    # -- driving it ----------------------------------------------------------------------------

    def configure(self, text: str, name: str = "lab.yaml") -> None:
        """A file in conf.d."""
        self.container.write(f"/etc/gpuwatch/conf.d/{name}", text)

    def configure_robot(self) -> None:
        """Messages go to the robot."""
        self.configure(ROBOT.replace("URL", self.robot.url), "robot.yaml")

    def start(self) -> None:
        """systemctl start, which returns after READY=1; fails with the journal's end."""
        done = self.container.run("systemctl", "start", "gpuwatch.service", check=False)
        assert done.returncode == 0, done.stderr + self.log()

    def kernel_says(self, text: str, facility: int = 0) -> None:
        """A line of the driver: into the journal, and a ring of the doorbell."""
        self.container.kmsg.write(text, facility=facility)
        self.doorbell.write(text, facility=facility)

    def burn(self, unit: str) -> int:
        """Start a workload and wait until it is on its GPU; its pid inside."""
        self.container.run("systemctl", "start", unit)
        gpu = unit.partition("@")[2].partition(".")[0]

        def entered() -> int:
            pid = int(self.container.show(unit, "MainPID")["MainPID"])
            return pid if f"{gpu}.compute = {pid}:" in self.scenario.path.read_text("utf-8") else 0

        return wait_for(entered, what=f"{unit} is on its GPU")

    # -- seeing --------------------------------------------------------------------------------

    def gpuwatch(self, *argv: str, check: bool = True) -> str:
        """Its command, run by root inside."""
        done = self.container.run("gpuwatch", *argv, check=check)
        return done.stdout + ("" if check else done.stderr)

    def status(self) -> dict[str, Any]:
        """`gpuwatch status --json`."""
        answer: dict[str, Any] = json.loads(self.gpuwatch("status", "--json"))
        return answer

    def incidents(self) -> list[dict[str, Any]]:
        """All of them, oldest first, each as `incident show --json` gives it (incident, actions, notifications)."""
        listed = self.container.run("gpuwatch", "incident", "list", "--all", "--json", check=False)
        if listed.returncode != 0:
            return []  # no store yet
        numbers = sorted(each["number"] for each in json.loads(listed.stdout)["incidents"])
        return [json.loads(self.gpuwatch("incident", "show", str(number), "--json")) for number in numbers]

    def incident(self, rule: str, timeout_s: float = 15.0) -> dict[str, Any]:
        """Wait for an incident that a rule is a cause of."""
        return wait_for(lambda: self._find(rule), timeout_s, f"an incident by {rule}", every_s=0.2)

    def action(self, rule: str, until: Callable[[Mapping[str, Any]], bool], timeout_s: float = 30.0) -> dict[str, Any]:
        """Wait until the last action that a rule asked for is as wanted."""

        def found() -> Optional[dict[str, Any]]:
            incident = self._find(rule)
            actions = [each for each in (incident["actions"] if incident else []) if each["rule"] == rule]
            return actions[-1] if actions and until(actions[-1]) else None

        last = wait_for(found, timeout_s, f"an action by {rule}", every_s=0.2)
        assert last is not None
        return last

    def _find(self, rule: str) -> Optional[dict[str, Any]]:
        for each in self.incidents():
            if any(cause["rule"] == rule for cause in each["incident"].get("causes", ())):
                return each
        return None

    def bundles(self) -> list[str]:
        """Names in the evidence directory, temporary ones included."""
        return sorted(self.container.sh("ls -A /var/lib/gpuwatch/evidence 2>/dev/null || true").stdout.split())

    def reasons(self, rule: str) -> set[str]:
        """The reason codes that gpuwatch has logged with a rule since the last reset."""
        entries = self.container.run(
            "journalctl", "-q", "-u", "gpuwatch.service", "-o", "json", f"--after-cursor={self._cursor}",
            "--output-fields=GPUWATCH_REASON,GPUWATCH_RULE",
        ).stdout  # fmt: skip
        fields = [json.loads(line) for line in entries.splitlines()]
        return {each.get("GPUWATCH_REASON", "") for each in fields if each.get("GPUWATCH_RULE") == rule}

    def log(self) -> str:
        """What the service wrote to the journal lately."""
        return self.container.journal("-u", "gpuwatch.service", "-n", "60")
