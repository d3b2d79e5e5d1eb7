"""The feature transaction.version: how its level changes, and what producers may do at each level."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compat.wire.case import Case, Family
from compat.wire.producers import producer_of_v1, producer_of_v2
from compat.wire.side import Side
from compat.wire.transactional import TIMEOUT_MS, TOPIC, describe, end, init, ready, write

from tidelog_node.kafka.protocol.messages.api_versions import ApiVersionsRequest
from tidelog_node.kafka.protocol.messages.quorum import FeatureUpdateKey, UpdateFeaturesRequest

FEATURE = "transaction.version"
_UPGRADE, _SAFE, _UNSAFE = 1, 2, 3
_IGNORED = ["api_keys"]
_OVER = "over-versions"


def _update(level: int, kind: int, *, only_checked: bool = True, **fields: Any) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        TIMEOUT_MS, [FeatureUpdateKey(FEATURE, level, upgrade_type=kind, **fields)], only_checked
    )


_CHECKED = (
    Case("version: supported", ApiVersionsRequest("x", "1"), (3, 4), _IGNORED),
    *(
        Case(f"version: level {level} by type {kind}", _update(level, kind), (1, 2))
        for level in (-1, 0, 1, 2, 3)
        for kind in (_UPGRADE, _SAFE, _UNSAFE)
    ),
    Case(
        "version: twice",
        UpdateFeaturesRequest(
            TIMEOUT_MS, [FeatureUpdateKey(FEATURE, level, upgrade_type=_SAFE) for level in (0, 1)], True
        ),
        (1, 2),
    ),
    # Version 0 cannot only check: both are refused.
    Case("version: too high in version 0", _update(3, _UPGRADE), (0,)),
    Case("version: lower in version 0 without consent", _update(1, _UPGRADE), (0,)),
    Case("version: still", ApiVersionsRequest("x", "1"), (4,), _IGNORED),
)


def _at(level: int, kind: int) -> Iterator[Case]:
    """Change the level, and let producers of both protocols write."""
    at = f"version {level}: "
    yield Case(f"{at}over the change, init", init(f"over {level}"), (5,), keep=f"over {level}", waits=True)
    yield Case(f"{at}over the change, writes", write(f"over {level}", 0, topic=_OVER), (12,))
    yield Case(f"{at}set", _update(level, kind, only_checked=False), (2,))
    yield Case(f"{at}known", ApiVersionsRequest("x", "1"), (4,), _IGNORED, settles=True)
    yield Case(f"{at}over the change, writes again", write(f"over {level}", 1, topic=_OVER), (12,))
    yield Case(f"{at}over the change, commits", end(f"over {level}"), (5,), keep=f"over {level} then")
    yield Case(
        f"{at}over the change, described", describe(f"over {level}"), ignore=["transaction_start_time_ms"], settles=True
    )
    yield from producer_of_v1(f"tv1-at-{level}", 4)
    if level:
        # At level 0, Kafka neither begins nor ends a transaction of a client that uses level 2.
        yield from producer_of_v2(f"tv2-at-{level}", 12)


def _prepare(side: Side) -> None:
    side.create([_OVER], 1)
    if TOPIC not in side.topic_ids:
        side.create([TOPIC], 2)
    ready(side)


FAMILIES = (Family("transaction versions", (*_CHECKED, *_at(1, _SAFE), *_at(0, _SAFE), *_at(2, _UPGRADE)), _prepare),)
