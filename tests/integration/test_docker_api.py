"""DockerApi against answers as Docker gives them, and against everything that may come instead."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from gpuwatch.model.container import COMPOSE_PROJECT, EngineError, EngineState, GpuRequest, Mount
from gpuwatch.system.containers import DockerApi
from tests.fakes.docker.answers import LIST, OOM, TRAINER, VERSION, event, http, inspect, lines
from tests.fakes.docker.socket import DockerSocket, Reply

BEGAN_NS = 1796017532_000000000
START_NS = 1796017532_123456789  # 2026-11-30T05:45:32.123456789Z


def docker(**replies: Reply) -> DockerSocket:
    """A Docker whose answers are good where none is given. Names: version, list, events, inspect."""
    good: dict[str, Reply] = {
        "/version": replies.get("version", http(VERSION)),
        "/containers/json": replies.get("list", http(LIST)),
        "/events": replies.get("events", http(b"", chunk=100)),
        f"/containers/{TRAINER}/json": replies.get("inspect", http(inspect(), chunk=1000)),
    }
    return DockerSocket(good)


def test_who_answers() -> None:
    with docker() as fake:
        facts = DockerApi(fake.path).facts()
    assert (facts.kind, facts.version) == ("docker", "28.5.1")


def test_the_list() -> None:
    with docker() as fake:
        found = DockerApi(fake.path).containers()
        assert fake.asked == ["/containers/json?all=1"]
    assert [(each.id, each.status) for each in found] == [(TRAINER, "running"), (OOM, "exited")]


def test_the_facts_of_a_container() -> None:
    with docker() as fake:
        found = DockerApi(fake.path).inspect(TRAINER)
    assert found is not None
    assert (found.engine, found.id, found.name, found.status) == ("docker", TRAINER, "llama-trainer-1", "running")
    assert (found.image, found.image_id) == ("registry.example.com/llama:7", "sha256:" + "5" * 64)
    assert (found.started_ns, found.finished_ns, found.exit_code) == (START_NS, None, None)
    assert (found.pid, found.restart_count, found.restart_policy) == (41872, 2, "on-failure")
    assert (found.oom_killed, found.log_driver, found.keeps_log) == (False, "json-file", True)
    assert (found.stop_signal, found.stop_timeout_s, found.runtime) == ("SIGINT", 120.0, "runc")
    assert found.compose == "llama/trainer"
    assert found.gpus == GpuRequest("device_requests", ids=("0", "GPU-8a31c9e4-52be-4f08-91a6-0c7be2d4158f"))
    assert found.mounts == (
        Mount("/srv/data", "/data", False, "bind"),
        Mount("/var/lib/docker/volumes/llama_checkpoints/_data", "/ckpt", True, "volume"),
    )
    assert found.labels["team"] == "ml"
    assert "geheim" not in str(vars(found))


def test_what_is_gone_is_none() -> None:
    with docker() as fake:
        assert DockerApi(fake.path).inspect(OOM) is None


def test_events_ask_docker_for_an_end_and_podman_for_no_stream() -> None:
    """podman loses past events when it is given an end; docker waits for more when it is given none."""
    podman = {**VERSION, "Components": [{"Name": "Podman Engine", "Version": "5.4.2"}]}
    with docker() as fake:
        DockerApi(fake.path).events(BEGAN_NS, BEGAN_NS + 1)
        assert fake.asked[1].startswith("/events?since=1796017532.000000000&until=1796017532.000000001&filters=")
    with docker(version=http(podman)) as fake:
        DockerApi(fake.path).events(BEGAN_NS, BEGAN_NS + 1)
        assert fake.asked[1].startswith("/events?since=1796017532.000000000&stream=false&filters=")


def test_events_are_read_in_order_and_in_dockers_words() -> None:
    said = lines(
        event("kill", BEGAN_NS + 5, signal="9"),
        event("exec_create: sh -c 'curl -H token:geheim'", BEGAN_NS + 2),
        event("exec_died", BEGAN_NS + 3, exitCode="0"),
        event("die", BEGAN_NS + 6, exitCode="137", execDuration="17"),
        event("health_status: unhealthy", BEGAN_NS + 4),
        {**event("start", BEGAN_NS + 1), "Type": "network"},
        event("remove", BEGAN_NS + 7),
    )
    with docker(events=http(said, chunk=64)) as fake:
        found = DockerApi(fake.path).events(BEGAN_NS, BEGAN_NS + 10)
    words = ["exec_create", "exec_die", "health_status", "kill", "die", "destroy"]
    assert [each.action for each in found] == words
    assert [each.exit_code for each in found] == [None, None, None, None, 137, None]
    assert (found[3].signal, found[2].health) == (9, "unhealthy")
    assert found[4].labels == {"team": "ml"}
    assert "geheim" not in str([vars(each) for each in found])


def test_an_event_without_the_older_fields() -> None:
    """API 1.52 no longer gives status, id and from."""
    new = {key: value for key, value in event("oom", BEGAN_NS).items() if key not in ("status", "id", "from")}
    with docker(events=http(lines(new))) as fake:
        (found,) = DockerApi(fake.path).events(BEGAN_NS, BEGAN_NS + 10)
    assert (found.action, found.container, found.name) == ("oom", TRAINER, "llama-trainer-1")


def test_a_broken_line_among_good_events_is_left_out() -> None:
    said = lines(event("start", BEGAN_NS)) + b'{"Type": "conta\n' + lines(event("oom", BEGAN_NS + 1))
    with docker(events=http(said)) as fake:
        assert [each.action for each in DockerApi(fake.path).events(BEGAN_NS, BEGAN_NS + 10)] == ["start", "oom"]


NONSENSE = {
    "no HTTP": b"hello\r\n",
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half a body": http(LIST)[:-40],
    "half a chunk": http(LIST, chunk=50)[:-40],
    "no JSON": http(b"<html>busy</html>"),
    "an object": http({"message": "hello"}),
    "an error": http({"message": "daemon is busy"}, status="503 Service Unavailable"),
    "a redirect": http(b"", status="301 Moved"),
    "no UTF-8": http(b'[{"Id": "\xff\xfe"}'),
    "deep": http(b"[" * 100_000),
    "a long number": http(b"[" + b"9" * 1_000_000 + b"]"),
    "a NaN": http(b"[NaN"),
    "a huge length": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n[]",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
    "a bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 500 + b"\r\n[]",
    "a long header": b"HTTP/1.1 200 OK\r\na: " + b"b" * 100_000 + b"\r\n\r\n[]",
}


@pytest.mark.parametrize("name", sorted(NONSENSE))
def test_nonsense_is_an_error_that_says_so(name: str) -> None:
    with docker(list=NONSENSE[name]) as fake:
        began = time.monotonic()
        with pytest.raises(EngineError) as error:
            DockerApi(fake.path).containers()
        assert time.monotonic() - began < 4
    assert error.value.state in (EngineState.FAILED, EngineState.DOWN)
    assert fake.path in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("call", ["facts", "inspect", "events"])
@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"null", b'"x"', b'{"Id": 7}', b"\x00"])
def test_nonsense_for_every_question(call: str, body: bytes) -> None:
    with docker(version=http(body), inspect=http(body), events=http(body)) as fake:
        api = DockerApi(fake.path)
        questions: dict[str, Callable[[], object]] = {
            "facts": api.facts,
            "inspect": lambda: api.inspect(TRAINER),
            "events": lambda: api.events(0, 1),
        }
        with pytest.raises(EngineError) as error:
            questions[call]()
    assert error.value.state is EngineState.FAILED


def _megabytes() -> Iterable[bytes]:
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    while True:
        yield b"10000\r\n" + b" " * 65536 + b"\r\n"


def test_megabytes_without_end_are_cut_off() -> None:
    with docker(list=_megabytes) as fake:
        tracemalloc.start()
        with pytest.raises(EngineError, match="more than 4194304 bytes"):
            DockerApi(fake.path).containers()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 32 * 1024**2


def _continue_for_ever() -> Iterable[bytes]:
    while True:
        yield b"HTTP/1.1 100 Continue\r\n\r\n" * 100


def test_promises_without_end_are_cut_off() -> None:
    """http.client takes any number of interim answers."""
    with docker(version=_continue_for_ever) as fake, pytest.raises(EngineError, match="more than") as error:
        DockerApi(fake.path, timeout_s=30.0).facts()
    assert error.value.state is EngineState.FAILED


def test_events_that_break_off_between_two_lines_are_not_all() -> None:
    said = http(lines(event("start", BEGAN_NS), event("die", BEGAN_NS + 1)))
    cut = said.index(b"\n", said.index(b"\r\n\r\n") + 4) + 1
    with docker(events=said[:cut]) as fake, pytest.raises(EngineError):
        DockerApi(fake.path).events(BEGAN_NS, BEGAN_NS + 10)


@pytest.mark.parametrize("how", ["at once", "after the head", "in the body", "dripping head", "dripping body"])
def test_a_slow_one_is_left_in_time(how: str) -> None:
    with docker() as fake:
        fake.replies["/containers/json"] = {
            "at once": fake.hang(),
            "after the head": fake.hang(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"),
            "in the body": fake.hang(http(LIST)[:-20]),
            "dripping head": fake.drip(http(LIST), 0.02),
            "dripping body": fake.drip(http(LIST, chunk=1), 0.02),
        }[how]
        began = time.monotonic()
        with pytest.raises(EngineError, match=r"does not answer within 0\.5 s") as error:
            DockerApi(fake.path, timeout_s=0.5).containers()
        assert 0.4 < time.monotonic() - began < 3
    assert error.value.state is EngineState.SLOW


def test_nobody_accepts() -> None:
    """A stopped engine whose socket still listens: the queue fills, then connecting itself would block."""
    with docker() as fake:
        fake.replies["/containers/json"] = fake.hang()
        for _ in range(12):
            with pytest.raises(EngineError) as error:
                DockerApi(fake.path, timeout_s=0.05).containers()
            assert error.value.state is EngineState.SLOW


def test_nobody_listens() -> None:
    with docker() as fake:
        path = fake.path
        api = DockerApi(path)
        assert api.identity()
    assert api.identity() == ""
    with pytest.raises(EngineError) as error:
        api.facts()
    assert error.value.state is EngineState.DOWN


GPUS = [
    ({}, GpuRequest("device_requests", ids=("0", "GPU-8a31c9e4-52be-4f08-91a6-0c7be2d4158f"))),
    (
        {"DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]]}]},
        GpuRequest("device_requests", all=True),
    ),
    (
        {"DeviceRequests": [{"Driver": "", "Count": 2, "Capabilities": [["gpu", "utility"]]}]},
        GpuRequest("device_requests", count=2),
    ),
    (
        {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=1", "vendor.example/nic=0"]}]},
        GpuRequest("cdi", ids=("1",)),
    ),
    ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]}, GpuRequest("cdi", all=True)),
    ({"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["tpu"]]}]}, None),
    # the environment counts only where something reads it: images bring "all" along
    ({"DeviceRequests": None}, None),
    ({"DeviceRequests": None, "Runtime": "nvidia"}, GpuRequest("environment", all=True)),
    (
        {"DeviceRequests": None, "Runtime": "nvidia", "Env": ["NVIDIA_VISIBLE_DEVICES=2, 3"]},
        GpuRequest("environment", ids=("2", "3")),
    ),
    ({"DeviceRequests": None, "Runtime": "nvidia", "Env": ["NVIDIA_VISIBLE_DEVICES=void"]}, None),
    ({"DeviceRequests": None, "Runtime": "nvidia", "Env": ["NVIDIA_VISIBLE_DEVICES="]}, None),
    (
        {"DeviceRequests": [], "Devices": [{"PathOnHost": "/dev/nvidia3"}, {"PathOnHost": "/dev/nvidiactl"}]},
        GpuRequest("devices", ids=("/dev/nvidia3",)),
    ),
    ({"DeviceRequests": "all", "Devices": 7, "Env": {}}, None),
]


@pytest.mark.parametrize("changes, expected", GPUS)
def test_which_gpus_are_asked_for(changes: dict[str, Any], expected: object) -> None:
    with docker(inspect=http(inspect(**changes))) as fake:
        found = DockerApi(fake.path).inspect(TRAINER)
    assert found is not None
    assert found.gpus == expected


STATES = [
    # status, exit code, FinishedAt, Error -> exit code told, finished told
    ("exited", 137, "2026-11-30T06:00:00.5Z", "", 137, 1796018400_500000000),
    ("exited", 0, "2026-11-30T07:00:00.000000001+01:00", "", 0, 1796018400_000000001),
    ("running", 0, "2026-11-30T06:00:00Z", "", None, 1796018400_000000000),  # the run before
    ("restarting", 1, "2026-11-30T06:00:00Z", "", 1, 1796018400_000000000),
    ("created", 127, "0001-01-01T00:00:00Z", 'exec: "trian": not found', 127, None),
    ("created", 0, "0001-01-01T00:00:00Z", "", None, None),
    ("exited", True, "yesterday", "", None, None),
]


@pytest.mark.parametrize("status, code, finished, error, told, told_ns", STATES)
def test_ends(status: str, code: int, finished: str, error: str, told: object, told_ns: object) -> None:
    state = {"Status": status, "ExitCode": code, "FinishedAt": finished, "Error": error}
    with docker(inspect=http(inspect(State=state))) as fake:
        found = DockerApi(fake.path).inspect(TRAINER)
    assert found is not None
    assert (found.exit_code, found.finished_ns) == (told, told_ns)


def test_labels_are_bounded_and_hold_no_secrets() -> None:
    labels = {f"a{number}": "x" for number in range(500)}
    labels |= {"long": "x" * 5000, "my.Password": "p", "hook": "https://u:p@host/", COMPOSE_PROJECT: "a\nb\x1b[31m"}
    with docker(inspect=http(inspect(Labels=labels))) as fake:
        found = DockerApi(fake.path).inspect(TRAINER)
    assert found is not None
    assert len(found.labels) <= 64
    assert not {"long", "my.Password", "hook"} & set(found.labels)
    assert found.compose_project == "a\ufffdb\ufffd[31m"
    json.dumps(dict(found.labels)).encode()
