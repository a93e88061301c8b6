"""Ways to reach people, by type. A new one is a module here and a line in CHANNELS."""

from __future__ import annotations

from gpuwatch.alerts.channels import wecom
from gpuwatch.alerts.channels.contract import Channel

CHANNELS: dict[str, Channel] = {channel.name: channel for channel in (wecom.CHANNEL,)}
