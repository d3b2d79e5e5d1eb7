"""A comparison of two brokers' responses to the same request, field by field, without values particular to a cluster.

Lists of structures are compared by their elements' names, in any order. The names of topics replace their ids,
``<made>`` replaces ids that a broker invents, and ``<text>`` the text of a message.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from compat.wire.side import UNKNOWN_ID, Side

from tidelog_foundation.errors import ErrorCode

ABSENT, THERE = "<absent>", "<there>"
_MADE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|^[\w-]{22}$")
_UNTOLD = {"throttle_time_ms", "cluster_id", "finalized_features_epoch"}
_SETS = {"partitions"}
"""Lists of numbers in any order."""
_TEXTS = {"error_message", "documentation"}
_MADE_UP = {"member_id", "leader"}
_COUNTED = {"producer_id", "ongoing_txn_producer_id"}
"""Ids that a broker counts up; 0 and -1 stand for none."""
_NAMES = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "group_id",
    "resource_name",
    "feature",
    "key",
    "api_key",
    "node_id",
    "broker_id",
    "replica_id",
    "partition_index",
    "partition_id",
    "partition",
    "index",
    "transactional_id",
    "producer_id",
    "user",
    "mechanism",
    "entity_type",
    "principal_name",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that the two have different values of; ``at`` is its path, ``<absent>`` stands where a side has none."""

    case: str
    at: str
    kafka: object
    tidelog: object

    def __str__(self) -> str:
        return f"{self.case!r}, {self.at!r}, {self.kafka!r}, {self.tidelog!r}"


class Plain:
    """Responses of one side as dicts and primitives; fields in ``ignore`` are left out."""

    def __init__(self, side: Side, ignore: Collection[str]) -> None:
        self._topics = {topic_id: name for name, topic_id in side.topic_ids.items()}
        self._topics |= {bytes(16): "<none>", UNKNOWN_ID: "<unknown>"}
        self._port = side.port
        self._left_out = _UNTOLD | set(ignore)

    def of(self, value: Any, field: str = "") -> object:
        if dataclasses.is_dataclass(value):
            names = [f.name for f in dataclasses.fields(value) if f.name not in self._left_out]
            return {name: self.of(getattr(value, name), name) for name in names}
        if isinstance(value, list):
            elements = [self.of(element, field) for element in value]
            return tuple(sorted(value)) if field in _SETS and _has_numbers(value) else self._list(elements)
        return self._primitive(value, field)

    def _list(self, elements: Sequence[object]) -> object:
        if not all(isinstance(element, dict) for element in elements):
            return tuple(elements)
        seen: Counter[str] = Counter()
        named = {}
        for element in sorted(elements, key=_place):  # type: ignore[arg-type]
            name = next((str(element[n]) for n in _NAMES if element.get(n) is not None), "")  # type: ignore[index, attr-defined]
            seen[name] += 1
            named[f"[{name}]" if seen[name] == 1 else f"[{name}]#{seen[name]}"] = element
        return named

    def _primitive(self, value: Any, field: str) -> object:
        if field.endswith("error_code"):
            return ErrorCode.of(value).name
        if field == "topic_id":
            return self._topics.get(bytes(value), "<made>")
        if field in _TEXTS:
            return value and "<text>"
        if field in _MADE_UP and value is not None:
            return _MADE.sub("<made>", value)
        if field in _COUNTED and value > 0:
            return "<made>"
        if field == "port" and value == self._port:
            return "<port>"
        return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else value


def _place(element: dict[str, object]) -> tuple[str, str]:
    """Return where an element stands among those of one name: producers, whose ids are left out, by what they did."""
    return str(element.get("error_code")), str(element) if "producer_id" in element else ""


def _has_numbers(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(element, int) for element in value)


def differences(case: str, kafka: object, tidelog: object, at: str = "") -> Iterator[Difference]:
    """Yield where two plain responses differ."""
    if not isinstance(kafka, dict) or not isinstance(tidelog, dict):
        if kafka != tidelog:
            known = [THERE if isinstance(value, dict) else value for value in (kafka, tidelog)]
            yield Difference(case, at, *(known if known[0] != known[1] else (kafka, tidelog)))
        return
    for name in dict.fromkeys([*kafka, *tidelog]):
        path = f"{at}{name}" if name.startswith("[") or not at else f"{at}.{name}"
        yield from differences(case, kafka.get(name, ABSENT), tidelog.get(name, ABSENT), path)
