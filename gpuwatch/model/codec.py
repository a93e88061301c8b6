"""Frozen dataclasses to JSON-able data and back, driven by their type hints.

Knows dataclasses, Optional, tuple[X, ...], Mapping[str, X], enums and plain scalars: what the
model uses. Unknown keys are ignored and missing ones take the field's default, so that a newer
or older gpuwatch can read the same state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def encode(thing: Any) -> Any:
    """Data made of dict, list, str, int, float, bool and None."""
    if isinstance(thing, Enum):
        return thing.value
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return {name: encode(getattr(thing, name)) for name in _names(type(thing))}
    if isinstance(thing, Mapping):
        return {str(key): encode(entry) for key, entry in thing.items()}
    if isinstance(thing, (tuple, list)):
        return [encode(entry) for entry in thing]
    return thing


def decode(kind: type[T], data: Any) -> T:
    """A `kind` from what `encode` gave. Raises TypeError, KeyError or ValueError on other data."""
    return cast(T, _decode(kind, data))


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _decode(kind: Any, data: Any) -> Any:
    if kind is Any:
        return data
    origin = get_origin(kind)
    if origin is Union:
        return _decode_union(get_args(kind), data)
    if origin is tuple:
        return _decode_tuple(get_args(kind), data)
    if origin is not None:  # Mapping[str, X] and dict[str, X]
        if not isinstance(data, dict):
            raise TypeError(f"expected an object, not {type(data).__name__}")
        inner = get_args(kind)[1]
        return {key: _decode(inner, entry) for key, entry in data.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(data, dict):
            raise TypeError(f"expected an object for {kind.__name__}, not {type(data).__name__}")
        hints = _hints(kind)
        given = {name: _decode(hints[name], data[name]) for name in _names(kind) if name in data}
        return kind(**given)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if isinstance(kind, type) and not isinstance(data, kind):
        raise TypeError(f"expected {kind.__name__}, not {type(data).__name__}")
    return data


def _decode_union(options: tuple[Any, ...], data: Any) -> Any:
    if data is None and type(None) in options:
        return None
    rest = [option for option in options if option is not type(None)]
    if len(rest) == 1:
        return _decode(rest[0], data)
    if isinstance(data, (str, int, float, bool)):  # Scalar
        return data
    raise TypeError(f"expected a scalar, not {type(data).__name__}")


def _decode_tuple(args: tuple[Any, ...], data: Any) -> Any:
    if not isinstance(data, (list, tuple)):
        raise TypeError(f"expected a list, not {type(data).__name__}")
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_decode(args[0], entry) for entry in data)
    return tuple(_decode(arg, entry) for arg, entry in zip(args, data))
