"""The sender: a child without privileges that delivers messages over HTTP. Run as `-m gpuwatch.alerts.sender`.

One JSON line a request: {"id", "channel": {"type", "options"}, "key", "message", "mention", "done",
"language"}. One JSON line an answer: {"id", "ok", "retryable", "problem", "retry_after_s", "done",
"answer"}. `done` lists the parts of a message that the service has taken, so that a retry does not
repeat them. The key comes in a request, stays in memory, and is in no answer and no error.

Ends when its standard input closes, or after a minute without a request.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from gpuwatch.alerts.channels import CHANNELS
from gpuwatch.alerts.channels.contract import Draft, Part, Verdict
from gpuwatch.catalog.text import clean
from gpuwatch.model.codec import decode
from gpuwatch.model.errors import DeliveryError
from gpuwatch.model.notification import Message
from gpuwatch.system.http import Answer, HttpError, Poster, prepare
from gpuwatch.system.privileges import drop_privileges

IDLE_S = 60.0
MOST_REQUEST_BYTES = 1 << 20
SCRUBBED = "(key)"


class Posts(Protocol):
    """What delivering needs of HTTP."""

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """The service's answer. Raises HttpError."""


def deliver(request: Mapping[str, Any], poster: Posts) -> dict[str, object]:
    """Send what is left of one message and tell what became of it. Never raises for what a request holds."""
    done: list[str] = []
    try:
        name = str(request["channel"]["type"])
        options = {str(key): str(value) for key, value in request["channel"]["options"].items()}
        done = [str(part) for part in request.get("done", ())]
        draft = Draft(
            decode(Message, request["message"]),
            tuple(str(who) for who in request.get("mention", ())),
            str(request.get("language", "en")),
            options,
        )
        key = str(request["key"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return _answer(request, done, Verdict(False, "", "the request can't be read"), "")
    channel = CHANNELS.get(name)
    if channel is None:
        return _answer(request, done, Verdict(False, "", "this channel type does not exist"), key)
    try:
        left = [part for part in channel.parts(draft, key) if part.name not in done]
    except DeliveryError as error:
        verdict = Verdict(False, "", str(error), retryable=error.retryable, retry_after_s=error.retry_after_s)
        return _answer(request, done, verdict, key)
    verdict = Verdict(True, "")
    for part in left:
        verdict = _post(part, poster, channel.judge)
        if not verdict.ok:
            break
        done.append(part.name)
    return _answer(request, done, verdict, key)


def _post(part: Part, poster: Posts, judge: Any) -> Verdict:
    try:
        answer = poster.post(part.url, part.body, part.headers)
    except HttpError as error:
        return Verdict(False, "", str(error), retryable=True)
    verdict: Verdict = judge(answer.status, answer.body)
    return verdict


def _answer(request: Mapping[str, Any], done: list[str], verdict: Verdict, key: str) -> dict[str, object]:
    return {
        "id": str(request.get("id", "")),
        "ok": verdict.ok,
        "retryable": verdict.retryable,
        "problem": scrub(verdict.problem, key),
        "retry_after_s": verdict.retry_after_s,
        "done": done,
        "answer": scrub(verdict.answer, key),
    }


def scrub(line: str, key: str) -> str:
    """The line without the key: a service may repeat it in its answer."""
    bare = key.strip().rpartition("key=")[2].partition("&")[0]
    for secret in (key.strip(), bare):
        if len(secret) >= 4:
            line = line.replace(secret, SCRUBBED)
    return clean(line, 300)


def requests_of(descriptor: int, idle_s: float) -> Iterator[Mapping[str, Any]]:
    """The requests that come in, until the end of input, `idle_s` without one, or a line without end."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    waiting = b""
    while poll.poll(idle_s * 1000):
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return
        waiting += chunk
        *lines, waiting = waiting.split(b"\n")
        for line in lines:
            try:
                request = json.loads(line)
            except ValueError:
                continue
            if isinstance(request, dict):
                yield request
        if len(waiting) > MOST_REQUEST_BYTES:
            return


def main() -> int:
    """Serve requests from standard input."""
    sys.excepthook = _tell_little
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon; it closes our input
    prepare()
    drop_privileges()
    poster = Poster()
    try:
        for request in requests_of(sys.stdin.fileno(), IDLE_S):
            line = json.dumps(deliver(request, poster)) + "\n"
            sys.stdout.write(line)
            sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)  # nobody listens any more; the interpreter would complain about the same pipe again
    finally:
        poster.close()
    return 0


def _tell_little(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """An unexpected error by its kind and place alone: its text could hold the key."""
    place = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    number = f" {error.errno}" if isinstance(error, OSError) else ""
    sys.stderr.write(f"gpuwatch sender: {kind.__name__}{number} at {place}\n")


if __name__ == "__main__":
    sys.exit(main())
