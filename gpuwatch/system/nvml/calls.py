"""Calls into pynvml with everything that may come back: a value, no such thing, trouble, or a card that is gone."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Union

from gpuwatch.model.metric import METRICS
from gpuwatch.model.reading import UNSUPPORTED, Reading, failed, value

# Return codes of nvml.h.
INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, FUNCTION_NOT_FOUND = 2, 3, 4, 6, 13
GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH = 15, 16, 25
_LOST = {
    GPU_IS_LOST: "the driver can no longer reach it (NVML error 15, GPU is lost)",
    RESET_REQUIRED: "the driver wants it reset (NVML error 16, reset required)",
}
# What a binding that does not fit its library, or text that is no text, may raise (N1, N2).
FOREIGN = (ValueError, TypeError, AttributeError, KeyError, OverflowError, OSError, ctypes.ArgumentError)

# A field value's number, or that with the link (or other part) that it is about.
Field = Union[int, tuple[int, int]]


class Unsupported(Exception):
    """The card, the driver or the binding does not offer this; the text is fit for people."""


class Trouble(Exception):
    """It should have worked and did not; the text is fit for people, `code` is NVML's, 0 where the binding failed."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class Lost(Exception):
    """The driver says that the card is gone."""


class Calls:
    """The library as it is for one start of the driver: a function that is missing is asked for once (N4, N12)."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self._missing: set[str] = set()

    def __call__(self, name: str, *arguments: Any, **options: Any) -> Any:
        """What `api.name(...)` returns. Raises Unsupported, Lost or Trouble."""
        known_as = name + ("/v2" if options else "")
        function = getattr(self.api, name, None)
        if function is None or known_as in self._missing:
            raise Unsupported(f"{name}: not in this driver's library or its Python module")
        try:
            return function(*arguments, **options)
        except self.api.NVMLError as error:
            self._translate(known_as, error)
        except FOREIGN as error:
            raise Trouble(f"{name}: {type(error).__name__}: {error}") from error

    def _translate(self, name: str, error: Any) -> None:
        code = getattr(error, "value", 999)
        if code in (FUNCTION_NOT_FOUND, VERSION_MISMATCH):
            self._missing.add(name)
        text = f"{name}: {error} (NVML error {code})"
        if code in (FUNCTION_NOT_FOUND, VERSION_MISMATCH, NOT_SUPPORTED):
            raise Unsupported(text) from error
        if code in _LOST:
            raise Lost(_LOST[code]) from error
        raise Trouble(text, code) from error


class Handle:
    """One GPU, or one MIG instance, as the argument of calls."""

    def __init__(self, calls: Calls, handle: Any) -> None:
        self.calls, self._handle = calls, handle

    def ask(self, *names: str, arguments: Sequence[Any] = (), **options: Any) -> Any:
        """The first of several functions that this driver has. Raises Unsupported, Lost or Trouble."""
        for name in names[:-1]:
            try:
                return self.calls(name, self._handle, *arguments, **options)
            except Unsupported:
                pass
        return self.calls(names[-1], self._handle, *arguments, **options)

    def number(self, *names: str, arguments: Sequence[Any] = (), divisor: float = 1.0) -> Reading:
        """The same as a reading. Raises Lost."""
        return attempt(lambda: self.ask(*names, arguments=arguments) / divisor)

    def numbers(self, name: str, count: int, arguments: Sequence[Any] = ()) -> list[Reading]:
        """A call that gives several numbers. Raises Lost."""
        answer = attempt_any(lambda: [float(number) for number in self.ask(name, arguments=arguments)])
        if isinstance(answer, Reading):
            return [answer] * count
        if len(answer) < count:
            return [failed(f"{name}: {len(answer)} numbers instead of {count}")] * count
        return [value(number) for number in answer[:count]]

    def text(self, name: str, part: Callable[[Any], Any] = lambda answer: answer) -> str:
        """Text, "" where there is none (N2). Raises Lost."""
        try:
            text = part(self.ask(name))
        except (Unsupported, Trouble, AttributeError):
            return ""
        return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)

    def fields(self, wanted: Sequence[Field]) -> dict[Field, Reading]:
        """Field values, each a reading of its own. Raises Lost."""
        answer = attempt_any(lambda: list(self.ask("nvmlDeviceGetFieldValues", arguments=(list(wanted),))))
        if isinstance(answer, Reading):
            return dict.fromkeys(wanted, answer)
        return {field: _field(entry) for field, entry in zip(wanted, answer)}


def attempt_any(call: Callable[[], Any]) -> Any:
    """What the call returns, or the Reading that says why there is nothing. Raises Lost."""
    try:
        return call()
    except Unsupported:
        return UNSUPPORTED
    except Trouble as trouble:
        return failed(str(trouble))
    except FOREIGN as error:
        return failed(f"{type(error).__name__}: {error}")


def attempt(call: Callable[[], Any]) -> Reading:
    """The same for a number."""
    answer = attempt_any(lambda: float(call()))
    return answer if isinstance(answer, Reading) else value(answer)


def checked(name: str, reading: Reading) -> Reading:
    """The reading, or a failed one when its value is beyond what is plausible for the metric (N9)."""
    metric = METRICS[name]
    if reading.value is None or metric.plausible(reading.value):
        return reading
    return failed(f"implausible: {reading.value:g} {metric.unit}")


def all_checked(readings: dict[str, Reading]) -> dict[str, Reading]:
    """Every one of them."""
    return {name: checked(name, reading) for name, reading in readings.items()}


def difference(left: Reading, right: Reading) -> Reading:
    """Left minus right, or why there is none."""
    if left.value is None or right.value is None:
        return left if left.value is None else right
    return value(left.value - right.value)


def ratio(part: Reading, whole: Reading) -> Reading:
    """Part divided by whole, or why there is none."""
    if part.value is None or whole.value is None:
        return part if part.value is None else whole
    return failed("implausible: divided by 0") if whole.value <= 0 else value(part.value / whole.value)


def otherwise(reading: Reading, ask: Callable[[], Reading]) -> Reading:
    """The reading, or another interface's where it is unsupported: a failure is not hidden behind another one."""
    return ask() if reading.unsupported else reading


def _field(entry: Any) -> Reading:
    code = int(entry.nvmlReturn)
    if code in _LOST:
        raise Lost(_LOST[code])
    if code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND, INVALID_ARGUMENT):  # older drivers don't know the number
        return UNSUPPORTED
    if code != 0:
        return failed(f"field {int(entry.fieldId)}: NVML error {code}")
    # nvmlValueType_t. Small numbers may come as unsigned with the sign lost, so 32 bits are read as signed.
    name = {0: "dVal", 1: "siVal", 2: "ulVal", 3: "sllVal", 4: "sllVal", 5: "siVal", 6: "usVal"}.get(entry.valueType)
    if name is None:
        return failed(f"field {int(entry.fieldId)}: a value of unknown type {entry.valueType}")
    return value(getattr(entry.value, name))
