"""Channels: how people are reached, and where a channel's key is found (never in these files)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from gpuwatch.config.kinds import NAME, Choice, Flag, ListOf, Text
from gpuwatch.config.report import Report
from gpuwatch.config.table import ChannelType, Fields, NamedList, Record, Setting, later, scalar
from gpuwatch.model.rule import Severity
from gpuwatch.model.settings import Channel, KeySource

LATER_TYPES = ("email", "webhook", "alertmanager", "dingtalk", "feishu", "lark", "apprise", "slack", "telegram")

_KEY_WORDS = (
    "a key never stands in the configuration; write {credential: NAME} (LoadCredential= of the unit)"
    " or {file: /PATH} (mode 0600)"
)


def _build_key(fields: Fields, path: str, report: Report) -> Optional[KeySource]:
    given = fields.given("credential", "file")
    if len(given) != 1:
        report.error(fields.place, path, "needs one of 'credential' and 'file'")
        return None
    return KeySource(fields.value("credential"), fields.value("file"))


KEY = Record(
    (
        Setting(
            "credential",
            Text(
                # No UUID, and nothing as long and mixed as a key: it would be one.
                r"(?!.*[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-)(?!(?=.*[0-9])[A-Za-z0-9_-]{32})[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}",
                "the name of a credential such as wecom-ops (not the key)",
                secret=True,
            ),
            "Name of a systemd credential (LoadCredential= in a drop-in of gpuwatch.service).",
            example="wecom-ops",
        ),
        Setting(
            "file",
            Text(r"/(?!.*[?=])[^\x00-\x1f]{1,4000}", "the absolute path of a file that holds the key", secret=True),
            "A file that only root can read (mode 0600) and that holds the key.",
            example="/etc/gpuwatch/wecom.key",
        ),
    ),
    _build_key,
    absent={"url_file": "is written as file; that may hold the key or the whole webhook URL"},
    instead=_KEY_WORDS,
)

_ABSENT = {
    "fallback": later("every channel of a severity gets the message"),
    "repeat": later("an open incident is not told again"),
    **dict.fromkeys(
        ("webhook", "token", "secret", "password", "webhook_url", "hook", "robot_key", "access_token"),
        f"is not a setting: {_KEY_WORDS} under 'key'",
    ),
}


def channels_table(types: Mapping[str, ChannelType]) -> NamedList:
    """The table of alerts.channels for the channel types that exist."""

    def build(fields: Fields, path: str, report: Report) -> Optional[Channel]:
        kind = types.get(fields.value("type", ""))
        if kind is None or "name" not in fields.found or "key" not in fields.found:
            return None
        options = {
            setting.name: str(scalar(setting).show(fields.value(setting.name, setting.default)))
            for setting in kind.settings
            if fields.value(setting.name, setting.default) is not None
        }
        return Channel(
            name=fields.value("name"),
            type=kind.name,
            key=fields.value("key"),
            severities=tuple(Severity(one) for one in fields.value("severities", ("warning", "critical"))),
            mention=fields.value("mention", ()),
            options=options,
        )

    return NamedList(
        noun="channel",
        settings=(
            Setting("name", NAME, "What the channel is called.", example="ops", required=True),
            Setting("enabled", Flag(), "false turns the channel off.", default=True),
            Setting(
                "type",
                Choice(tuple(types), tuple(name for name in LATER_TYPES if name not in types)),
                "; ".join(f"{kind.name}: {kind.help}" for kind in types.values()),
                example=next(iter(types), ""),
                required=True,
            ),
            Setting("key", KEY, "Where the key is read from when a message is sent.", required=True),
            Setting(
                "severities",
                ListOf(Choice(("warning", "critical"), ("info",), "is only logged"), least=1),
                "Which alerts come here.",
                default=("warning", "critical"),
            ),
            Setting(
                "mention",
                ListOf(Text(r"@all|[A-Za-z0-9+_.@-]{1,64}", "@all, a member's id or a mobile number")),
                "Who is called by name when it is critical: @all, members' ids or mobile numbers.",
                default=(),
                example='["@all"]',
            ),
        ),
        build=build,
        absent=_ABSENT,
        variants={name: kind.settings for name, kind in types.items()},
    )
