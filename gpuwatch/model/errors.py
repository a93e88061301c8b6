"""Errors, named by what the caller does about them."""

from __future__ import annotations

from dataclasses import dataclass


class GpuwatchError(Exception):
    """Base of everything gpuwatch raises on purpose. Its text is fit for people and holds no secret."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong in a configuration file; line and column count from 1."""

    file: str
    line: int
    column: int
    text: str  # "rules[0].above: 'hot' is not a number of degrees Celsius (1 to 125)"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.text}"


class ConfigError(GpuwatchError):
    """The configuration can't be used. Holds every problem, in file and line order."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class SourceError(GpuwatchError):
    """Something could not be read; the caller goes on without it and tries again later."""


class StoreError(GpuwatchError):
    """State could not be read or written."""


class EvidenceError(GpuwatchError):
    """A bundle could not be made durable; nothing destructive may follow (S1)."""


class ActionError(GpuwatchError):
    """An action did not work. `unknown` is True when it may have worked all the same."""

    def __init__(self, text: str, unknown: bool = False) -> None:
        super().__init__(text)
        self.unknown = unknown


class DeliveryError(GpuwatchError):
    """A message was not delivered. `retryable` tells whether a later try can help."""

    def __init__(self, text: str, retryable: bool, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.retryable = retryable
        self.retry_after_s = retry_after_s
