"""Configuration files for tests: written to a directory, loaded, problems with short names."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from gpuwatch.alerts.channels.options import channel_types
from gpuwatch.config.load import Loaded, load
from gpuwatch.model.errors import ConfigError

MAIN = "gpuwatch.yaml"


def write(directory: Path, main: Optional[str], **drop_ins: str) -> str:
    """Write gpuwatch.yaml and conf.d/<name>.yaml ("_" stands for "-"); the path of the first."""
    (directory / "conf.d").mkdir(exist_ok=True)
    if main is not None:
        (directory / MAIN).write_text(main, encoding="utf-8")
    for name, text in drop_ins.items():
        (directory / "conf.d" / f"{name.replace('_', '-')}.yaml").write_text(text, encoding="utf-8")
    return str(directory / MAIN)


def loaded(directory: Path, main: str, **drop_ins: str) -> Loaded:
    """The configuration of these files."""
    return load(write(directory, main, **drop_ins), channel_types())


def problems(directory: Path, main: Optional[str], **drop_ins: str) -> list[str]:
    """What is wrong with these files, with paths below the directory."""
    path = write(directory, main, **drop_ins)
    try:
        load(path, channel_types())
    except ConfigError as error:
        return [str(problem).replace(f"{directory}/", "") for problem in error.problems]
    return []
