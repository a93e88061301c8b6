"""The group robot of WeCom (enterprise WeChat, 企业微信群机器人).

POST {url}/cgi-bin/webhook/send?key=KEY with {"msgtype": "markdown", ...}; the answer is HTTP 200 with
{"errcode": 0, "errmsg": "ok"} when the message was taken, and HTTP 200 with another errcode when it
was not. Limits and codes are those of the service's documentation ("群机器人配置说明", "全局错误码"):
markdown 4096 bytes, text 2048 bytes, 20 messages a minute for one robot; mentions work in text only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from urllib.parse import parse_qs, quote

from gpuwatch.alerts.channels.contract import Channel, Draft, Option, Part, Verdict, judge_status
from gpuwatch.catalog.text import clean
from gpuwatch.catalog.texts import text
from gpuwatch.model.errors import DeliveryError
from gpuwatch.model.notification import Message
from gpuwatch.model.rule import Severity

MARKDOWN_BYTES = 4096  # W1: bytes of UTF-8, not characters
TEXT_BYTES = 2048
RATE_PAUSE_S = 60.0
SERVICE = "https://qyapi.weixin.qq.com"
PATH = "/cgi-bin/webhook/send"
COLOURS = ("info", "comment", "warning")  # green, grey, orange: all that the markdown knows

# HTTP in clear is for a receiver on this very host (tests, a local relay); a key never crosses a network so.
_LOOPBACK = r"(?:127\.0\.0\.1|localhost|\[::1\])"
_URL = rf"(?:https://[A-Za-z0-9.\-\[\]:]{{1,255}}|http://{_LOOPBACK}(?::\d{{1,5}})?)(?:/[A-Za-z0-9._~/-]{{0,255}})?"
_KEY = re.compile(r"[A-Za-z0-9_-]{8,128}")

_RETRYABLE = {
    -1: "the service is busy",
    45009: "more than 20 messages a minute to this robot",
    45033: "too many calls at once",
}
_PERMANENT = {
    93000: "the key belongs to no robot: it was mistyped, or the robot was removed from its group",
    93004: "the robot was disabled",
    93008: "the robot is not in the group any more",
    40058: "the service does not accept the form of this message",
    40008: "the service does not accept this kind of message",
    44004: "the message is empty",
}
_PLAIN = str.maketrans({"<": "＜", "`": "'", "*": "∗"})
_LEADING = {"#": "＃", ">": "＞", "-": "－", "+": "＋"}  # what would make a heading, a quote, a list


def parts(draft: Draft, key: str) -> tuple[Part, ...]:
    """The markdown message, and a short text beside it when somebody is called (W6)."""
    url = endpoint(draft.options.get("url") or SERVICE, key)
    made = [_part("markdown", url, {"msgtype": "markdown", "markdown": {"content": markdown(draft)}})]
    if draft.mention:
        made.append(_part("mention", url, {"msgtype": "text", "text": _mention(draft)}))
    return tuple(made)


def _part(name: str, url: str, payload: dict[str, object]) -> Part:
    body = json.dumps(payload, ensure_ascii=False).encode()
    return Part(name, url, body, {"Content-Type": "application/json; charset=utf-8"})


def endpoint(service: str, key: str) -> str:
    """Where to post. Raises DeliveryError, without the key in it, when there is none to be made."""
    if re.fullmatch(_URL, service) is None:
        raise DeliveryError("the channel's url is neither https:// nor on this host", retryable=False)
    return f"{service.rstrip('/')}{PATH}?key={quote(bare_key(key), safe='')}"


def bare_key(given: str) -> str:
    """The key from what people paste: the key itself, or the robot's whole webhook URL (W4)."""
    key = given.strip()
    if "://" in key:
        # Not urlsplit: its errors repeat what they were given.
        key = (parse_qs(key.partition("?")[2].partition("#")[0]).get("key") or [""])[0].strip()
    elif key.startswith("key="):
        key = key[len("key=") :]
    if not _KEY.fullmatch(key):
        raise DeliveryError("the key is neither a robot's key nor its webhook URL", retryable=False)
    return key


def markdown(draft: Draft) -> str:
    """The message in the service's markdown, cut to its limit."""
    message = draft.message
    head = f'**<font color="{colour(message)}">', "</font>**"
    return _assemble(message, draft.language, MARKDOWN_BYTES, head, escape)


def _mention(draft: Draft) -> dict[str, object]:
    """The text that calls people. A number of digits is a mobile phone, anything else a user id or @all."""
    mobiles = [name for name in draft.mention if re.fullmatch(r"\+?\d{6,15}", name)]
    users = [name for name in draft.mention if name not in mobiles]
    content: dict[str, object] = {"content": _cut(_quiet(draft.message.title), TEXT_BYTES)}
    if users:
        content["mentioned_list"] = users
    if mobiles:
        content["mentioned_mobile_list"] = mobiles
    return content


def colour(message: Message) -> str:
    """Green when it is over, orange while it is not, grey for what is only to be known."""
    if message.tone in ("resolved", "test"):
        return "info"
    return "comment" if message.severity is Severity.INFO else "warning"


def escape(line: str) -> str:
    """Plain text that the markdown shows as it is: no tag, link, code, bold, heading, quote or list."""
    quiet = _quiet(line).translate(_PLAIN).replace("](", "] (")
    return _LEADING.get(quiet[:1], quiet[:1]) + quiet[1:]


def _quiet(line: str) -> str:
    """One line, without what calls somebody."""
    return clean(line, MARKDOWN_BYTES).replace("@all", "＠all").replace("<@", "＜@")


def _assemble(
    message: Message, language: str, limit: int, head: tuple[str, str], quote_line: Callable[[str], str]
) -> str:
    """Title and lines; when they are too long the last lines go, and a mark with the bundle's id comes."""
    before, after = head
    mark = text(language, "cut", bundle=escape(message.bundle)) if message.bundle else text(language, "cut.plain")
    body = [quote_line(line) for line in message.lines]
    title = _cut(quote_line(message.title), limit - _size(before + after) - _size(mark) - 2)
    whole = "\n".join([before + title + after, *body])
    if _size(whole) <= limit:
        return whole
    room = limit - _size(mark) - 1
    kept = before + title + after
    for line in body:
        left = room - _size(kept) - 1
        if _size(line) > left:
            if left > 40:  # a stump shorter than this says nothing
                kept += "\n" + _cut(line, left)
            break
        kept += "\n" + line
    return kept + "\n" + mark


def _size(piece: str) -> int:
    return len(piece.encode())


def _cut(line: str, most_bytes: int) -> str:
    """At most so many bytes of UTF-8, never half a character."""
    data = line.encode()
    if len(data) <= most_bytes:
        return line
    return data[: max(0, most_bytes - 3)].decode(errors="ignore") + "…"


def judge(status: int, body: bytes) -> Verdict:
    """Delivered means HTTP 200 and errcode 0 (W3). Codes without a name here count as permanent."""
    if status != 200:
        return judge_status(status)
    try:
        answer = json.loads(body)
        code = answer["errcode"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return Verdict(False, "HTTP 200, no errcode", "the answer is not that of a WeCom robot", retryable=True)
    if isinstance(code, bool) or not isinstance(code, int):
        return Verdict(False, "HTTP 200, no errcode", "the answer is not that of a WeCom robot", retryable=True)
    said = clean(str(answer.get("errmsg", "")), 200)
    words = f"errcode {code}" + (f", {said}" if said else "")
    if code == 0:
        return Verdict(True, words)
    if code in _RETRYABLE:
        pause_s = RATE_PAUSE_S if code == 45009 else 0.0
        return Verdict(False, words, f"errcode {code}: {_RETRYABLE[code]}", retryable=True, retry_after_s=pause_s)
    return Verdict(False, words, f"errcode {code}: {_PERMANENT.get(code, said or 'refused')}")


CHANNEL = Channel(
    name="wecom",
    help="group robot of WeCom (enterprise WeChat); the key is the robot's key or its webhook URL",
    options=(
        Option(
            "url",
            help="where the service answers; another than the default for a private deployment or a local relay",
            pattern=_URL,
            what="https://HOST, or http:// on this host",
            default=SERVICE,
            example="https://wecom.example.com",
        ),
    ),
    parts=parts,
    judge=judge,
)
