"""What is carried out once an intent is written down."""

from __future__ import annotations

from enum import Enum


class Effect(str, Enum):
    """See the machines that ask for them: actions/machine.py and actions/reversible.py."""

    PRESERVE = "preserve"  # write the evidence bundle
    WARN = "warn"  # tell the people who are logged in
    CHECKPOINT = "checkpoint"  # the workload's own signal
    STOP = "stop"
    KILL = "kill"
    ASK = "ask"  # what is set now
    SET = "set"  # to Intent.value
    RESTORE = "restore"  # to Intent.before
