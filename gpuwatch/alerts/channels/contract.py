"""What a channel type is: pure functions that write requests and read answers. The sender child does the HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpuwatch.model.notification import Message


@dataclass(frozen=True)
class Option:
    """A setting of a channel type: a text that matches `pattern` as a whole. `what` completes "expected ..."."""

    name: str
    help: str
    pattern: str
    what: str
    default: str
    example: str = ""


@dataclass(frozen=True)
class Part:
    """One HTTP POST. `url` and `headers` may hold the key: they are left out of repr and never told."""

    name: str  # unique within a message: "markdown", "mention"
    url: str = field(repr=False)
    body: bytes
    headers: Mapping[str, str] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What an answer means. `answer` is the service's own, in words; `problem` is "" when `ok`."""

    ok: bool
    answer: str
    problem: str = ""
    retryable: bool = False
    retry_after_s: float = 0.0


@dataclass(frozen=True)
class Draft:
    """What is to be written: the message, whom to call, in which language, and the channel's options."""

    message: Message
    mention: tuple[str, ...]
    language: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class Channel:
    """A channel type. `parts` raises DeliveryError (not retryable) for a key or an option that can't be used."""

    name: str
    help: str
    options: tuple[Option, ...]
    parts: Callable[[Draft, str], tuple[Part, ...]]  # the draft and the key
    judge: Callable[[int, bytes], Verdict]  # HTTP status and the first bytes of the body


def judge_status(status: int) -> Verdict:
    """The part of judging that is the same for every HTTP service: anything but 2xx (W9).

    5xx, 408, 425 and 429 are worth another try, and so is a redirect (a portal in the way); the
    rest of 4xx is the sender's own fault and stays.
    """
    answer = f"HTTP {status}"
    if 300 <= status < 400:
        return Verdict(False, answer, f"{answer}: a redirect, which is not followed", retryable=True)
    if status == 429:
        return Verdict(False, answer, f"{answer}: too many messages", retryable=True, retry_after_s=60.0)
    if status in (408, 425) or status >= 500 or status < 200:
        return Verdict(False, answer, f"{answer}: the service has trouble", retryable=True)
    return Verdict(False, answer, f"{answer}: the service refuses the request")
