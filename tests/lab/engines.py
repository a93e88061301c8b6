"""Real podman and real docker, each with its API on a socket of its own: own storage, own images, no network.

podman needs root and the packages podman, runc, conmon, busybox-static; docker needs docker.io. Both work without
systemd (cgroupfs) and on cgroup v1.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Optional

from tests.lab.refusal import why_no_command, why_no_namespaces
from tests.lab.waiting import wait_for

IMAGE = "localhost/gpuwatch-box:1"
APPLETS = ("sh", "sleep", "true", "cat", "echo")
BUSYBOX = "/bin/busybox"
PR_SET_PDEATHSIG = 1

# netavark is not asked (each container has no network); user limits of the defaults may be above what root has here.
_CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=1000:1000", "nproc=1000:1000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


def why_no_podman() -> str:
    """What stands against it here; "" if nothing does."""
    missing = why_no_namespaces() or why_no_command("podman", "runc", "conmon")
    return missing or ("" if os.access(BUSYBOX, os.X_OK) else "needs busybox-static")


class EngineApi:
    """Containers through the API, by hand."""

    def __init__(self, place: str) -> None:
        self.place = Path(tempfile.mkdtemp(prefix=place))
        self.socket = str(self.place / "engine.sock")
        self.process: Optional[subprocess.Popen[bytes]] = None

    def launch(self, argv: Sequence[str]) -> None:
        """Start the engine and wait until it answers. It dies with this process."""
        with (self.place / "engine.log").open("ab") as log:
            self.process = subprocess.Popen(
                argv, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )  # fmt: skip
        try:
            wait_for(self._answers, what="the engine's API")
        except AssertionError as error:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{error}: {(self.place / 'engine.log').read_text()[-1000:]}") from error

    def environment(self) -> dict[str, str]:
        """What it and its tools are given."""
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        return {"PATH": path, "HOME": str(self.place), "CONTAINERS_CONF": str(self.place / "containers.conf")}

    def make_image(self) -> Path:
        """A tar of busybox."""
        with tarfile.open(self.place / "box.tar", "w") as tar:
            tar.add(os.path.realpath(BUSYBOX), "bin/busybox")
            for name in APPLETS:
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        return self.place / "box.tar"

    def _answers(self) -> bool:
        try:
            return self.call("GET", "/_ping")[0] == 200
        except OSError:
            return False

    def call(self, method: str, target: str, body: Optional[Any] = None) -> tuple[int, Any]:
        """One request with JSON, or with a file; status and JSON."""
        with socket.socket(socket.AF_UNIX) as plug:
            plug.settimeout(30)
            plug.connect(self.socket)
            connection = http.client.HTTPConnection("localhost")
            connection.sock = plug
            tar = isinstance(body, Path)
            payload = body.read_bytes() if isinstance(body, Path) else None if body is None else json.dumps(body)
            kind = "application/x-tar" if tar else "application/json"
            connection.request(method, target, payload, {"Content-Type": kind})
            response = connection.getresponse()
            data = response.read()
            connection.close()
        try:
            return response.status, json.loads(data) if data else None
        except ValueError:
            return response.status, data

    def create(self, name: str, script: str, **options: Any) -> str:
        """A container that will run `sh -c script`; its id. `options` go into the request."""
        host = {"NetworkMode": "none", **options.pop("HostConfig", {})}
        body = {"Image": IMAGE, "Cmd": ["sh", "-c", script], "HostConfig": host, **options}
        status, answer = self.call("POST", f"/containers/create?name={name}", body)
        assert status == 201, answer
        return str(answer["Id"])

    def post(self, container_id: str, verb: str) -> None:
        """start, stop?t=0, kill?signal=TERM, pause, unpause, ..."""
        status, answer = self.call("POST", f"/containers/{container_id}/{verb}")
        assert status in (200, 204, 304), answer

    def remove(self, container_id: str) -> None:
        """Delete it, running or not."""
        status, answer = self.call("DELETE", f"/containers/{container_id}?force=true")
        assert status in (200, 204), answer


class Podman(EngineApi):
    """`podman system service` for the time of a with block. Containers left over are removed at the end."""

    def __init__(self) -> None:
        super().__init__("gpuwatch-podman-")

    def __enter__(self) -> Podman:
        (self.place / "containers.conf").write_text(_CONTAINERS_CONF)
        image = self.make_image()
        self.podman("import", str(image), IMAGE)
        self.serve()
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.stop_serving()
        self.podman("rm", "--all", "--force", "--time", "0", check=False)
        with contextlib.suppress(OSError):
            subprocess.run(["umount", str(self.place / "root" / "overlay")], capture_output=True, check=False)
        shutil.rmtree(self.place, ignore_errors=True)

    # the service

    def serve(self) -> None:
        """Start the API."""
        self.launch([*self._argv(), "system", "service", "--time", "0", f"unix://{self.socket}"])

    def stop_serving(self) -> None:
        """End the API; containers go on."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)

    def podman(self, *argv: str, check: bool = True) -> str:
        """The command over the same storage."""
        done = subprocess.run(
            [*self._argv(), *argv], env=self.environment(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    def _argv(self) -> list[str]:
        place = self.place
        return ["podman", "--root", f"{place}/root", "--runroot", f"{place}/run", "--tmpdir", f"{place}/tmp"]


def why_no_docker() -> str:
    """What stands against it here; "" if nothing does."""
    missing = why_no_namespaces() or why_no_command("dockerd", "containerd", "runc")
    return missing or ("" if os.access(BUSYBOX, os.X_OK) else "needs busybox-static")


class Docker(EngineApi):
    """dockerd for the time of a with block, without bridge and firewall rules."""

    def __init__(self) -> None:
        super().__init__("gpuwatch-docker-")

    def __enter__(self) -> Docker:
        place = self.place
        (place / "daemon.json").write_text("{}")  # that of the host is not ours
        self.launch(
            ["dockerd", "--data-root", f"{place}/data", "--exec-root", f"{place}/exec", "--pidfile", f"{place}/pid",
             "--config-file", f"{place}/daemon.json", "-H", f"unix://{self.socket}", "--bridge=none",
             "--iptables=false", "--ip6tables=false", "--ip-masq=false", "--oom-score-adjust=0",
             "--default-ulimit=nofile=1000:1000", "--exec-opt", "native.cgroupdriver=cgroupfs"],
        )  # fmt: skip
        name, tag = IMAGE.split(":")
        status, answer = self.call("POST", f"/images/create?fromSrc=-&repo={name}&tag={tag}", self.make_image())
        assert status == 200, answer
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        for each in self.call("GET", "/containers/json?all=1")[1]:
            self.remove(each["Id"])
        assert self.process is not None
        self.process.terminate()
        self.process.wait(20)
        shutil.rmtree(self.place, ignore_errors=True)
