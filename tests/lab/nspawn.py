"""A booted systemd in systemd-nspawn: started, spoken to, stopped. Needs root; no machined, no D-Bus of the host."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Optional

from tests.lab.kmsg import KernelLog
from tests.lab.refusal import unified_mount
from tests.lab.roots import LabError

PR_SET_PDEATHSIG = 1
BOOT_TIMEOUT_S = 60.0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

Result = subprocess.CompletedProcess[str]


class Container:
    """A container whose PID 1 is systemd. Its root is an overlay: what happens inside is gone at the end.

    The network is the host's, so a loopback server of the test is reachable from inside.
    """

    def __init__(self, root: Path, binds: Sequence[str] = (), options: Sequence[str] = ()) -> None:
        """`binds` as systemd-nspawn's --bind= takes them (SOURCE:TARGET)."""
        self.name = "gw" + uuid.uuid4().hex[:8]
        self.leader = 0  # pid of its PID 1, seen from here
        self.boot_s = 0.0
        self._base, self._binds, self._options = root, tuple(binds), tuple(options)
        self._place = Path(tempfile.mkdtemp(prefix="gpuwatch-lab-"))
        self._console = self._place / "console.log"
        self._cgroup = Path(unified_mount()) / self.name
        self._process: Optional[subprocess.Popen[bytes]] = None
        self.kmsg = KernelLog(self._place / "kmsg")

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> Container:
        """Boot and wait until PID 1 says that it is done. Raises LabError with the console's end."""
        began = time.monotonic()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(str(self._place / "notify"))
            # nspawn makes its payload's cgroup below the one it was started in: without one of its own, two
            # containers would share it.
            self._cgroup.mkdir()
            self._launch()
            try:
                self._await_ready(notify, began + BOOT_TIMEOUT_S)
            except BaseException:
                self.stop()
                raise
        self.boot_s = time.monotonic() - began
        return self

    def stop(self, timeout_s: float = 20.0) -> None:
        """Power off in order; kill after `timeout_s`. Leaves nothing behind."""
        process = self._process
        if process is not None and process.poll() is None:
            if self.leader:
                os.kill(self.leader, signal.SIGRTMIN + 4)  # systemd: start poweroff.target
            else:
                process.terminate()
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                if self.leader:
                    os.kill(self.leader, signal.SIGKILL)  # takes its whole PID namespace along
                process.kill()
                process.wait()
        self._remove_cgroup()
        if self.kmsg.path.exists():
            self.kmsg.close()
        shutil.rmtree(self._place, ignore_errors=True)

    def __enter__(self) -> Container:
        return self.start()

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.stop()

    # -- use -----------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """Its file system, seen from here."""
        return Path(f"/proc/{self.leader}/root")

    @property
    def bus_address(self) -> str:
        """Its system bus, for a D-Bus client out here."""
        return f"unix:path={self.root}/run/dbus/system_bus_socket"

    def run(self, *argv: str, check: bool = True, timeout_s: float = 60.0, stdin: Optional[str] = None) -> Result:
        """Run a command in all its namespaces (but not in a cgroup of its own: see unit())."""
        done = subprocess.run(
            ["nsenter", "-t", str(self.leader), "-a", "--wdns=/", "--", "env", "-i", f"PATH={PATH}", "LANG=C.UTF-8",
             "HOME=/root", "DEBIAN_FRONTEND=noninteractive", *argv],
            input=stdin if stdin is not None else "", capture_output=True, text=True, timeout=timeout_s,
        )  # fmt: skip
        if check and done.returncode != 0:
            said = done.stdout[-3000:] + done.stderr[-3000:]
            raise AssertionError(f"{' '.join(argv)}: exit {done.returncode}\n{said}")
        return done

    def sh(self, script: str, check: bool = True, timeout_s: float = 60.0) -> Result:
        """Run a shell script inside."""
        return self.run("sh", "-ec", script, check=check, timeout_s=timeout_s)

    def unit(self, *argv: str, properties: Sequence[str] = (), check: bool = True, timeout_s: float = 60.0) -> Result:
        """Run a command as a transient service: own cgroup, journal attribution, clean environment."""
        return self.run(
            "systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--service-type=exec",
            *[f"--property={each}" for each in properties], "--", *argv, check=check, timeout_s=timeout_s,
        )  # fmt: skip

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Put a file inside, whole or not at all (so that a reader never sees half of it)."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.new")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(mode)
        fresh.rename(target)

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit."""
        wanted = [f"--property={name}" for name in names]
        lines = self.run("systemctl", "show", *wanted, "--", unit).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def journal(self, *matches: str, check: bool = False) -> str:
        """Its journal as text (journalctl's arguments)."""
        return self.run("journalctl", "--no-pager", "-o", "short-monotonic", *matches, check=check).stdout

    # -- inside --------------------------------------------------------------------------------

    def _launch(self) -> None:
        libc = ctypes.CDLL(None)
        members = str(self._cgroup / "cgroup.procs")

        def enter() -> None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # ends with the test, also when that is killed
            with open(members, "w") as procs:
                procs.write("0")

        with self._console.open("wb") as console:
            self._process = subprocess.Popen(
                ["systemd-nspawn", "-b", "-D", str(self._base), "-M", self.name, "--register=no", "--keep-unit",
                 "--notify-ready=yes", "--kill-signal=SIGRTMIN+3", "--console=pipe", "--quiet", "--volatile=overlay",
                 f"--bind={self.kmsg.path}:/dev/kmsg", *[f"--bind={bind}" for bind in self._binds], *self._options],
                stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT, start_new_session=True,
                env={"PATH": PATH, "LANG": "C.UTF-8", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
                     "NOTIFY_SOCKET": str(self._place / "notify")},
                preexec_fn=enter,
            )  # fmt: skip

    def _await_ready(self, notify: socket.socket, deadline: float) -> None:
        assert self._process is not None
        notify.settimeout(0.2)
        while True:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise LabError(f"the container did not boot:\n{self._console.read_text(errors='replace')[-3000:]}")
            with contextlib.suppress(socket.timeout):
                for line in notify.recv(8192).decode(errors="replace").splitlines():
                    if line.startswith("X_NSPAWN_LEADER_PID="):
                        self.leader = int(line.partition("=")[2])
                    elif line == "READY=1":
                        return

    def _remove_cgroup(self) -> None:
        for directory, _, _ in os.walk(self._cgroup, topdown=False):
            with contextlib.suppress(OSError):  # one with a process that is still dying stays; it is empty
                os.rmdir(directory)
