"""The state of a core as plain data: for comparisons, and to show that it can be dumped."""

from __future__ import annotations

import copyreg
import enum
from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from ipaddress import IPv4Address, IPv6Address
from types import MappingProxyType
from typing import Any


def _read_only(mapping: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(mapping)


# Images have read-only maps, which Python neither copies nor pickles without help.
copyreg.pickle(MappingProxyType, lambda mapping: (_read_only, (dict(mapping),)))
_PLAIN = (int, float, str, bytes, bytearray, type(None), enum.Enum, IPv4Address, IPv6Address)


def state_of(part: object) -> Any:
    """Return the whole state of an object as lists, tuples and plain values.

    Raises:
        TypeError: a part is no data, for example a function.
    """
    if isinstance(part, _PLAIN):
        return part
    if isinstance(part, Mapping):
        return "map", [(state_of(key), state_of(value)) for key, value in part.items()]
    if isinstance(part, AbstractSet):
        return "set", sorted(map(repr, map(state_of, part)))
    if isinstance(part, (list, tuple, deque)):
        return type(part).__name__, [state_of(item) for item in part]
    if callable(part) or not type(part).__module__.startswith(("tidelog_", "random_numbers", "topic_ids")):
        raise TypeError(f"{part!r} is no data")
    return type(part).__name__, {name: state_of(value) for name, value in _fields(part) if not name.startswith("__")}


def _fields(part: object) -> list[tuple[str, object]]:
    slots = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
    names = [*slots, *getattr(part, "__dict__", {})]
    return [(name, getattr(part, name)) for name in names if hasattr(part, name)]
