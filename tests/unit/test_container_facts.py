"""Whatever an engine sends as JSON becomes facts that can be stored, or an error; which workload means a container."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.codec import decode, encode
from gpuwatch.model.container import Container, matches, workload_of
from gpuwatch.model.settings import Workload
from gpuwatch.system import container_facts
from gpuwatch.system.container_facts import NonsenseError, utc_ns
from tests.fakes.docker.answers import TRAINER, event, inspect, lines

TIMES = [
    ("1970-01-01T00:00:01Z", 10**9),
    ("2026-11-30T05:45:32.123456789Z", 1796017532_123456789),
    ("2026-11-30T05:45:32.1Z", 1796017532_100000000),
    ("2026-11-30T05:45:32.123456789123Z", 1796017532_123456789),
    ("2026-11-30T13:45:32.123456789+08:00", 1796017532_123456789),
    ("2026-11-30T00:15:32-0530", 1796017532_000000000),
    ("2026-11-30 05:45:32Z", 1796017532_000000000),
    ("0001-01-01T00:00:00Z", None),  # "never"
    ("1970-01-01T00:00:00Z", None),
    ("2026-11-30T05:45:32", None),  # of which zone?
    ("2026-13-30T05:45:32Z", None),
    ("2026-11-30T25:45:32Z", None),
    ("now", None),
    ("", None),
    (None, None),
    (1796017532, None),
    ("٢٠٢٦-11-30T05:45:32Z", None),
]


@pytest.mark.parametrize("text, expected", TIMES)
def test_times(text: object, expected: object) -> None:
    assert utc_ns(text) == expected


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
_PLACES = [
    ("State",), ("Config",), ("HostConfig",), ("Mounts",), ("Name",), ("Created",), ("RestartCount",),
    ("State", "Status"), ("State", "ExitCode"), ("State", "OOMKilled"), ("State", "Pid"), ("State", "StartedAt"),
    ("State", "FinishedAt"), ("State", "Error"), ("Config", "Labels"), ("Config", "Env"), ("Config", "Image"),
    ("Config", "StopTimeout"), ("HostConfig", "DeviceRequests"), ("HostConfig", "Devices"), ("HostConfig", "LogConfig"),
    ("HostConfig", "Runtime"), ("HostConfig", "RestartPolicy"),
]  # fmt: skip


@given(place=st.sampled_from(_PLACES), value=_JSON, engine=st.sampled_from(["docker", "podman"]))
def test_any_value_in_any_place(place: tuple[str, ...], value: Any, engine: str) -> None:
    data = inspect()
    inner = data
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    try:
        found = container_facts.container(data, engine)
    except NonsenseError:
        assert place == ("State",)
        return
    text = json.dumps(encode(found), ensure_ascii=False)
    text.encode("utf-8")  # no halves of surrogate pairs
    assert len(text) < 100_000
    assert decode(Container, json.loads(text)) == found


@given(_JSON)
def test_anything_for_facts_and_list(data: Any) -> None:
    for make in (lambda: container_facts.container(data, "docker"), lambda: container_facts.listed(data)):
        try:
            make()
        except NonsenseError:
            pass


@given(st.lists(st.binary(max_size=60) | _JSON.map(lambda data: json.dumps(data).encode()), max_size=5))
def test_anything_for_events(parts: list[bytes]) -> None:
    good = lines(event("start", 10**9))
    found = container_facts.events(b"\n".join(parts) + b"\n" + good)
    assert found[-1].action == "start"


def test_long_numbers_are_not_read() -> None:
    with pytest.raises(NonsenseError):
        container_facts.load(b"9" * 25)
    assert container_facts.load(b'{"a": [9007199254740993, -1, 0.5]}') == {"a": [9007199254740993, -1, 0.5]}


def test_an_event_keeps_no_command() -> None:
    (found,) = container_facts.events(lines(event("exec_create: sh -c 'echo geheim'", 10**9)))
    assert "geheim" not in str(vars(found))


def box(name: str = "llama-trainer-1", **labels: str) -> Container:
    return Container(
        "docker",
        TRAINER,
        name,
        "running",
        compose_project=labels.pop("project", ""),
        compose_service=labels.pop("service", ""),
        labels=labels,
    )


@pytest.mark.parametrize(
    "pattern, container, expected",
    [
        ("llama-trainer-1", box(), True),
        ("llama-*", box(), True),
        ("LLAMA-*", box(), False),
        ("trainer-*", box(), False),
        ("label:team=ml", box(team="ml"), True),
        ("label:team=ml", box(team="mlx"), False),
        ("label:team=", box(), False),
        ("label:team=", box(team=""), True),
        ("label:a=b=c", box(a="b=c"), True),
        ("label:team", box(team="ml"), False),
        ("compose:llama/trainer", box(project="llama", service="trainer"), True),
        ("compose:llama/*", box(project="llama", service="trainer"), True),
        ("compose:llama/serve", box(project="llama", service="trainer"), False),
        ("compose:*/*", box(), False),
        ("compose:llama", box(project="llama"), True),
    ],
)
def test_which_containers_a_pattern_means(pattern: str, container: Container, expected: bool) -> None:
    assert matches(container, pattern) is expected


def test_the_first_workload_that_names_it() -> None:
    workloads = (Workload("units", ("a.service",)), Workload("a", containers=("x", "llama-*")), Workload("b", (), 1))
    found = workload_of(box(), workloads)
    assert found is not None and found.name == "a"
    assert workload_of(box("other"), workloads) is None


@pytest.mark.parametrize(
    "container", [box("k8s_llama_pod_ns_uid_0"), box("llama-x", **{"io.kubernetes.pod.name": "llama"})]
)
def test_a_kubelets_container_belongs_to_no_workload(container: Container) -> None:
    assert workload_of(container, (Workload("all", containers=("llama-*", "k8s_*")),)) is None
