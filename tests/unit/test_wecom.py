"""The WeCom group robot: what is posted, and what its answers mean."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as some

from gpuwatch.alerts.channels import CHANNELS
from gpuwatch.alerts.channels.contract import Draft, Part
from gpuwatch.alerts.channels.options import channel_types
from gpuwatch.alerts.channels.wecom import (
    CHANNEL,
    MARKDOWN_BYTES,
    SERVICE,
    TEXT_BYTES,
    bare_key,
    endpoint,
    escape,
    judge,
    parts,
)
from gpuwatch.model.errors import DeliveryError
from gpuwatch.model.notification import Message
from gpuwatch.model.rule import Severity

KEY = "693a91f6-7000-4bc4-97a0-0ec2sifa5aaa"
BUNDLE = "20261130T054532Z-gpu-critical-3d9a7c10"


def draft(
    title: str = "[critical] gpu-07 GPU3 hot",
    lines: tuple[str, ...] = ("13:47:12 CST 92 C", "gpuwatch incident show 17"),
    mention: tuple[str, ...] = (),
    tone: str = "firing",
    severity: Severity = Severity.CRITICAL,
    bundle: str = BUNDLE,
    language: str = "en",
) -> Draft:
    return Draft(Message(title, lines, severity, tone, bundle=bundle), mention, language, {})


def payload(part: Part) -> Any:
    return json.loads(part.body)


def content(part: Part) -> str:
    text = payload(part)[payload(part)["msgtype"]]["content"]
    assert isinstance(text, str)
    return text


def test_markdown_message() -> None:
    (part,) = parts(draft(), KEY)
    assert part.url == f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={KEY}"
    assert payload(part) == {
        "msgtype": "markdown",
        "markdown": {
            "content": '**<font color="warning">[critical] gpu-07 GPU3 hot</font>**\n'
            "13:47:12 CST 92 C\ngpuwatch incident show 17"
        },
    }


@pytest.mark.parametrize(
    "tone, severity, colour",
    [
        ("firing", Severity.CRITICAL, "warning"),
        ("firing", Severity.WARNING, "warning"),
        ("firing", Severity.INFO, "comment"),
        ("resolved", Severity.CRITICAL, "info"),
        ("test", Severity.INFO, "info"),
    ],
)
def test_colours_are_the_three_that_exist(tone: str, severity: Severity, colour: str) -> None:
    (part,) = parts(draft(tone=tone, severity=severity), KEY)
    assert f'<font color="{colour}">' in content(part)


def test_mention_is_a_short_text_beside_the_message_w6() -> None:
    first, second = parts(draft(mention=("@all", "zhangsan", "13800001111")), KEY)
    assert [first.name, second.name] == ["markdown", "mention"]
    assert payload(second) == {
        "msgtype": "text",
        "text": {
            "content": "[critical] gpu-07 GPU3 hot",
            "mentioned_list": ["@all", "zhangsan"],
            "mentioned_mobile_list": ["13800001111"],
        },
    }
    assert "mentioned" not in str(payload(first))


@pytest.mark.parametrize("size", [MARKDOWN_BYTES - 1, MARKDOWN_BYTES, MARKDOWN_BYTES + 1, 3 * MARKDOWN_BYTES])
@pytest.mark.parametrize("mark", ["a", "卡", "😀"])
def test_limit_is_in_bytes_and_the_bundle_stays_w1(size: int, mark: str) -> None:
    room = size - len(content(parts(draft(lines=("",)), KEY)[0]).encode())
    line = mark * (room // len(mark.encode())) + "x" * (room % len(mark.encode()))
    text = content(parts(draft(lines=(line,)), KEY)[0])
    assert len(text.encode()) <= MARKDOWN_BYTES
    if size <= MARKDOWN_BYTES:
        assert text.endswith(line)
    else:
        assert text.endswith(f"... cut; evidence {BUNDLE}")
        assert len(text.encode()) > MARKDOWN_BYTES - 10, "what fits is kept"


TEXT = some.text(max_size=6000).map(lambda text: text.replace("\r", " "))


@effort(max_examples=150, deadline=None)
@given(
    title=TEXT,
    lines=some.lists(TEXT, max_size=7),
    bundle=some.one_of(some.just(""), some.text(max_size=80)),
    language=some.sampled_from(["en", "zh"]),
)
def test_any_message_stays_within_the_limits_w1(title: str, lines: list[str], bundle: str, language: str) -> None:
    made = parts(draft(title, tuple(lines), ("@all",), bundle=bundle, language=language), KEY)
    markdown, text = (content(part) for part in made)
    assert len(markdown.encode()) <= MARKDOWN_BYTES
    assert len(text.encode()) <= TEXT_BYTES
    head, tail = '**<font color="warning">', "</font>**"
    assert markdown.startswith(head)
    assert tail in markdown
    inside = markdown[len(head) :].replace(tail, "", 1)
    assert not re.search(r"[<`*]|\]\(|@all", inside), "nothing from outside is markup or a mention"
    assert not any(re.match(r"[#>+-]", line) for line in inside.split("\n")[1:])
    assert not any(unicodedata.category(mark) in ("Cc", "Cs") for mark in inside.replace("\n", ""))
    assert "@all" not in text


@pytest.mark.parametrize(
    "plain, shown",
    [
        ("<font color='x'>", "＜font color='x'>"),
        ("<@zhangsan>", "＜@zhangsan>"),
        ("a [link](http://evil) b", "a [link] (http://evil) b"),
        ("**bold** `code`", "∗∗bold∗∗ 'code'"),
        ("# heading", "＃ heading"),
        ("> quote", "＞ quote"),
        ("700 -> 500 W, train@llama.service", "700 -> 500 W, train@llama.service"),
    ],
)
def test_text_from_outside_is_no_markup(plain: str, shown: str) -> None:
    assert escape(plain) == shown


@pytest.mark.parametrize(
    "given_key",
    [
        KEY,
        f"  {KEY}\n",
        f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={KEY}",
        f"https://qyapi.weixin.qq.com/cgi-bin/webhook/send?debug=1&key={KEY}#x",
        f"key={KEY}",
    ],
)
def test_key_or_url_is_accepted_w4(given_key: str) -> None:
    assert bare_key(given_key) == KEY


@pytest.mark.parametrize(
    "wrong",
    ["", "short", "https://[bad/?key", f"https://x/?token={KEY}", f"{KEY}\n{KEY}", f"{KEY}&x=1", "ключ-ключ-ключ"],
)
def test_wrong_key_is_permanent_and_never_repeated_w4(wrong: str) -> None:
    with pytest.raises(DeliveryError) as caught:
        parts(draft(), wrong)
    assert not caught.value.retryable
    assert not wrong or wrong not in str(caught.value)


@pytest.mark.parametrize(
    "service, good",
    [
        (SERVICE, True),
        ("https://wecom.example.com:8443/proxy/", True),
        ("http://127.0.0.1:8080", True),
        ("http://localhost:1", True),
        ("http://[::1]:1", True),
        ("http://qyapi.weixin.qq.com", False),
        ("http://127.0.0.1.evil.example", False),
        ("http://localhost@evil.example", False),
        ("https://user:pw@host", False),
        ("https://host/?key=1", False),
        ("ftp://host", False),
    ],
)
def test_keys_cross_the_network_by_https_only(service: str, good: bool) -> None:
    if good:
        assert endpoint(service, KEY).endswith(f"/cgi-bin/webhook/send?key={KEY}")
        return
    with pytest.raises(DeliveryError) as caught:
        endpoint(service, KEY)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "status, body, ok, retryable",
    [
        (200, '{"errcode": 0, "errmsg": "ok"}', True, False),
        (200, '{"errcode": 40058, "errmsg": "markdown.content exceed max length 4096"}', False, False),  # W1
        (200, '{"errcode": 93000, "errmsg": "invalid webhook url"}', False, False),  # W4
        (200, '{"errcode": 45009, "errmsg": "api freq out of limit"}', False, True),  # W5
        (200, '{"errcode": -1, "errmsg": "system busy"}', False, True),
        (200, '{"errcode": 12345, "errmsg": "?"}', False, False),
        (200, '{"errmsg": "ok"}', False, True),
        (200, '{"errcode": "0"}', False, True),
        (200, '{"errcode": false}', False, True),
        (200, '{"errcode": null}', False, True),
        (200, "[0]", False, True),
        (200, "<html>portal</html>", False, True),
        (200, "", False, True),
        (200, "[" * 60_000, False, True),
        (200, "\udcff", False, True),
        (201, '{"errcode": 0}', False, False),
        (302, "", False, True),
        (400, '{"errcode": 0}', False, False),  # W9
        (404, "", False, False),
        (408, "", False, True),
        (429, "", False, True),
        (500, '{"errcode": 0}', False, True),
        (503, "", False, True),
    ],
)
def test_only_the_services_own_ok_is_delivery_w3_w9(status: int, body: str, ok: bool, retryable: bool) -> None:
    verdict = judge(status, body.encode(errors="surrogateescape"))
    assert (verdict.ok, verdict.retryable) == (ok, retryable)
    assert bool(verdict.problem) is not ok


@pytest.mark.parametrize("status, body, pause_s", [(200, '{"errcode": 45009}', 60.0), (429, "", 60.0), (500, "", 0.0)])
def test_too_many_asks_for_a_pause_w5(status: int, body: str, pause_s: float) -> None:
    assert judge(status, body.encode()).retry_after_s == pause_s


@given(status=some.integers(100, 999), body=some.binary(max_size=200))
def test_no_answer_is_too_strange(status: int, body: bytes) -> None:
    verdict = judge(status, body)
    assert not verdict.ok or (status == 200 and b"errcode" in body)


def test_key_is_in_no_repr() -> None:
    assert KEY not in repr(parts(draft(mention=("@all",)), KEY))


@pytest.mark.parametrize("name", sorted(CHANNELS))
def test_registry_settings_and_modules_agree(name: str) -> None:
    channel = CHANNELS[name]
    assert channel.name == name
    declared = channel_types()[name]
    assert [setting.name for setting in declared.settings] == [option.name for option in channel.options]
    for option in channel.options:
        assert re.fullmatch(option.pattern, option.default)
        assert not option.example or re.fullmatch(option.pattern, option.example)


def test_default_service_is_wecoms_own() -> None:
    assert CHANNEL.options[0].default == SERVICE
