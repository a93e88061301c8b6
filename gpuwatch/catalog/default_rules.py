"""The default rules as they ship, as text; gpuwatch.config reads and checks them like any other file."""

from __future__ import annotations

from pathlib import Path


def default_rules_text() -> bytes:
    """The bytes of rules.yaml beside this module."""
    return Path(__file__).with_name("rules.yaml").read_bytes()
