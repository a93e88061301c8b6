"""What a Docker Engine (28, API 1.51) answers, made by hand from the documented API; facts of a host that never was."""

from __future__ import annotations

import json
from typing import Any, Optional

TRAINER = "4f1c" * 16
SERVER = "9ae0" * 16
OOM = "c0de" * 16

VERSION = {
    "Platform": {"Name": "Docker Engine - Community"},
    "Components": [{"Name": "Engine", "Version": "28.5.1"}, {"Name": "containerd", "Version": "v1.7.28"}],
    "Version": "28.5.1",
    "ApiVersion": "1.51",
    "MinAPIVersion": "1.24",
    "Os": "linux",
}

LIST = [
    {
        "Id": TRAINER,
        "Names": ["/llama-trainer-1"],
        "Image": "registry.example.com/llama:7",
        "ImageID": "sha256:" + "5" * 64,
        "Command": "torchrun --nproc-per-node 4 train.py",
        "Created": 1796020000,
        "Ports": [],
        "Labels": {"com.docker.compose.project": "llama", "com.docker.compose.service": "trainer"},
        "State": "running",
        "Status": "Up 5 hours",
        "HostConfig": {"NetworkMode": "host"},
        "Mounts": [],
    },
    {"Id": OOM, "Names": ["/old"], "State": "exited", "Status": "Exited (137) 2 days ago"},
]


def inspect(container_id: str = TRAINER, **changes: Any) -> dict[str, Any]:
    """GET /containers/ID/json. `changes`: of Config (Labels, Env, StopTimeout), added to State, or of HostConfig."""
    facts: dict[str, Any] = {
        "Id": container_id,
        "Created": "2026-11-30T05:40:01.018273645Z",
        "Path": "torchrun",
        "Args": ["--nproc-per-node", "4", "train.py", "--token", "geheim"],
        "State": {
            "Status": "running",
            "Running": True,
            "Paused": False,
            "Restarting": False,
            "OOMKilled": False,
            "Dead": False,
            "Pid": 41872,
            "ExitCode": 0,
            "Error": "",
            "StartedAt": "2026-11-30T05:45:32.123456789Z",
            "FinishedAt": "0001-01-01T00:00:00Z",
        },
        "Image": "sha256:" + "5" * 64,
        "LogPath": f"/var/lib/docker/containers/{container_id}/{container_id}-json.log",
        "Name": "/llama-trainer-1",
        "RestartCount": 2,
        "Driver": "overlay2",
        "HostConfig": {
            "Binds": ["/srv/data:/data:ro"],
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "50m"}},
            "NetworkMode": "host",
            "RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3},
            "Runtime": "runc",
            "DeviceRequests": [
                {
                    "Driver": "nvidia",
                    "Count": 0,
                    "DeviceIDs": ["0", "GPU-8a31c9e4-52be-4f08-91a6-0c7be2d4158f"],
                    "Capabilities": [["gpu"]],
                    "Options": {},
                }
            ],
            "Devices": [],
        },
        "Mounts": [
            {"Type": "bind", "Source": "/srv/data", "Destination": "/data", "Mode": "ro", "RW": False},
            {
                "Type": "volume",
                "Name": "llama_checkpoints",
                "Source": "/var/lib/docker/volumes/llama_checkpoints/_data",
                "Destination": "/ckpt",
                "Driver": "local",
                "RW": True,
            },
        ],
        "Config": {
            "Image": "registry.example.com/llama:7",
            "Env": ["NVIDIA_VISIBLE_DEVICES=all", "WANDB_API_KEY=geheim"],
            "Labels": {
                "com.docker.compose.project": "llama",
                "com.docker.compose.service": "trainer",
                "team": "ml",
                "traefik.http.middlewares.a.basicauth.users": "me:geheim",
            },
            "StopSignal": "SIGINT",
            "StopTimeout": 120,
        },
    }
    facts["State"].update(changes.pop("State", {}))
    for name in ("Labels", "Env", "StopTimeout"):
        if name in changes:
            facts["Config"][name] = changes.pop(name)
    facts["HostConfig"].update(changes)
    return facts


def event(action: str, at_ns: int, container_id: str = TRAINER, **attributes: str) -> dict[str, Any]:
    """One line of GET /events, with docker's older fields beside the newer ones."""
    known = {"image": "registry.example.com/llama:7", "name": "llama-trainer-1", "team": "ml", **attributes}
    return {
        "status": action,
        "id": container_id,
        "from": known["image"],
        "Type": "container",
        "Action": action,
        "Actor": {"ID": container_id, "Attributes": known},
        "scope": "local",
        "time": at_ns // 10**9,
        "timeNano": at_ns,
    }


def lines(*events: Any) -> bytes:
    """As they are sent."""
    return b"".join(json.dumps(each).encode() + b"\n" for each in events)


def http(body: Any, status: str = "200 OK", chunk: Optional[int] = None) -> bytes:
    """A whole answer as bytes; `chunk`: sent in chunks of that size, as docker does for what it makes on the way."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nApi-Version: 1.51\r\nContent-Type: application/json\r\nConnection: close\r\n"
    if chunk is None:
        return head.encode() + f"Content-Length: {len(data)}\r\n\r\n".encode() + data
    pieces = [data[start : start + chunk] for start in range(0, len(data), chunk)] + [b""]
    return (
        head.encode()
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces)
    )
