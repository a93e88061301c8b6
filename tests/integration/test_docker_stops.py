"""What DockerApi does to a container, against answers as Docker gives them and against none at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuwatch.model.errors import ActionError
from gpuwatch.system.container_facts import ENDLESS_STOP_S, container
from gpuwatch.system.containers import DockerApi
from tests.fakes.docker.answers import TRAINER, http, inspect
from tests.fakes.docker.socket import DockerSocket, Reply

DONE = b"HTTP/1.1 204 No Content\r\nApi-Version: 1.51\r\n\r\n"
THERE = b"HTTP/1.1 304 Not Modified\r\nApi-Version: 1.51\r\n\r\n"
PLACE = f"/containers/{TRAINER}"


def says(status: str, words: str) -> bytes:
    return http({"message": words}, status)


def engine(**replies: Reply) -> DockerSocket:
    return DockerSocket({f"{PLACE}/{verb}": reply for verb, reply in replies.items()})


@pytest.mark.parametrize(("grace_s", "asked"), [(120.0, 120), (0.5, 1), (0.0, 1), (29.2, 30)])
def test_a_stop_gives_the_grace_in_whole_seconds_and_never_none(grace_s: float, asked: int) -> None:
    with engine(stop=DONE) as fake:
        DockerApi(fake.path).stop(TRAINER, grace_s)
        assert fake.asked == [f"{PLACE}/stop?t={asked}"]


def test_a_kill_and_an_unpause() -> None:
    with engine(kill=DONE, unpause=DONE) as fake:
        DockerApi(fake.path).kill(TRAINER, 10)
        DockerApi(fake.path).unpause(TRAINER)
        assert fake.asked == [f"{PLACE}/kill?signal=10", f"{PLACE}/unpause"]


def test_one_that_has_stopped_already_is_no_error() -> None:
    with engine(stop=THERE) as fake:
        DockerApi(fake.path).stop(TRAINER, 1.0)


@pytest.mark.parametrize(
    ("reply", "words", "unknown"),
    [
        (says("404 Not Found", f"No such container: {TRAINER}"), "No such container", False),
        (says("409 Conflict", "cannot kill container: is not running"), "is not running", False),
        (says("500 Internal Server Error", "tried to kill container, but did not receive an exit event"), "exit", True),
        (http(b"<html>", "502 Bad Gateway"), "HTTP status 502", True),
        (http(["message"], "400 Bad Request"), "HTTP status 400", False),
    ],
)
def test_what_docker_refuses_is_an_error_with_its_words(reply: bytes, words: str, unknown: bool) -> None:
    with engine(stop=reply) as fake, pytest.raises(ActionError) as error:
        DockerApi(fake.path).stop(TRAINER, 1.0)
    assert words in str(error.value) and "\n" not in str(error.value)
    assert error.value.unknown is unknown


@pytest.mark.parametrize(
    "reply",
    [lambda fake: fake.hang(), lambda fake: fake.hang(DONE[:20]), lambda fake: b"", lambda fake: b"no HTTP\r\n"],
)
def test_an_answer_that_is_lost_leaves_it_unknown(reply: Callable[[DockerSocket], Reply]) -> None:
    with engine() as fake:
        fake.replies[f"{PLACE}/kill"] = reply(fake)
        with pytest.raises(ActionError) as error:
            DockerApi(fake.path, stopped_s=0.1).kill(TRAINER, 9)
        assert error.value.unknown
        assert fake.asked == [f"{PLACE}/kill?signal=9"]  # once: a signal is not repeated by itself


@pytest.mark.parametrize(("said", "seconds"), [(-1, float(ENDLESS_STOP_S)), (0, None), (None, None), (45, 45.0)])
def test_the_grace_of_a_container(said: object, seconds: object) -> None:
    facts = inspect()
    facts["Config"]["StopTimeout"] = said
    assert container(facts, "docker").stop_timeout_s == seconds
