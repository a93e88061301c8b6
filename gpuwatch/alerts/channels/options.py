"""The channel types' own settings, in the form that the configuration checks."""

from __future__ import annotations

from gpuwatch.alerts.channels import CHANNELS
from gpuwatch.config.kinds import Text
from gpuwatch.config.table import ChannelType, Setting


def channel_types() -> dict[str, ChannelType]:
    """Type name -> its settings, for gpuwatch.config's loader."""
    return {
        channel.name: ChannelType(
            channel.name,
            channel.help,
            tuple(
                Setting(option.name, Text(option.pattern, option.what), option.help, option.default, option.example)
                for option in channel.options
            ),
        )
        for channel in CHANNELS.values()
    }
