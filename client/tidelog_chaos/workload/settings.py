"""How much a run's clients do, and the settings of each sort of client. What the user sets goes first."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelog_chaos.workload.library import Library
from tidelog_foundation.errors import ConfigError

_PRODUCER = {"acks": "all", "linger.ms": 1, "message.timeout.ms": 10_000, "request.timeout.ms": 5_000}
_MEMBER = {"auto.offset.reset": "earliest", "request.timeout.ms": 10_000, "auto.commit.interval.ms": 1_000}
_CLASSIC = {"group.protocol": "classic", "session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000}
_PROTOCOLS: Sequence[Mapping[str, Any]] = (
    {**_CLASSIC, "partition.assignment.strategy": "range"},
    {**_CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    {"group.protocol": "consumer"},
)
"""Ways in which a group shares its partitions: one that is for a run is drawn by its seed."""
_PROTOCOL_OF = {
    "partition.assignment.strategy": "classic",
    "session.timeout.ms": "classic",
    "heartbeat.interval.ms": "classic",
    "group.remote.assignor": "consumer",
}
_INSTANCE = "group.instance.id"
_OF_GROUPS = frozenset({"group.id", "group.protocol", *_PROTOCOL_OF})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSettings:
    """How much is sent, by how many clients, to where.

    ``consumers`` None is as many as the workload usually has. ``producer``, ``consumer`` and ``topic`` are settings
    that go before the run's own, with their dotted names.
    """

    rate_per_s: float = 200
    topics: int = 2
    partitions: int = 3
    replication_factor: int = 3
    writes_per_key: int = 1_000
    producers: int = 2
    processes_per_producer: int = 8
    consumers: int | None = None
    crash_interval_s: float = 30
    producer: Mapping[str, Any] = field(default_factory=dict)
    consumer: Mapping[str, Any] = field(default_factory=dict)
    topic: Mapping[str, str] = field(default_factory=dict)


def producer_config(own: Mapping[str, Any], library: Library) -> dict[str, Any]:
    """Return the settings of a producer: acknowledged by all and idempotent, unless its ``own`` say otherwise."""
    is_idempotent = own.get("acks") in (None, "all", "-1", -1)
    return {**_PRODUCER, **library.producer_defaults, "enable.idempotence": is_idempotent, **own}


def group_config(own: Mapping[str, Any], group_id: str, dice: random.Random) -> dict[str, Any]:
    """Return the settings that all members of a group have; the dice choose among the protocols that ``own`` allow."""
    return {"group.id": group_id, **_MEMBER, **dice.choice(_protocols(own)), **own}


def member_config(config: Mapping[str, Any], own: Mapping[str, Any], name: str, dice: random.Random) -> dict[str, Any]:
    """Return the settings of one member: by the dice it is static or not, and commits by itself or is told to."""
    chosen: dict[str, Any] = {"enable.auto.commit": dice.random() < 0.5}
    if dice.random() < 0.5:
        chosen[_INSTANCE] = name
    return {**config, **chosen, **own}


def without_group(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a consumer that is in no group."""
    return {name: value for name, value in own.items() if name not in _OF_GROUPS}


def check_clients(settings: WorkloadSettings, library: Library, workload: str = "queue") -> None:
    """Raise ConfigError for a setting that the library's producers or consumers do not take."""
    library.check_producer(producer_config(settings.producer, library))
    own = settings.consumer
    if workload != "subscribe":
        library.check_consumer(own)
    elif _INSTANCE in own:
        raise ConfigError(f"--consumer {_INSTANCE}: members need one each, which the seed gives to some")
    else:
        for protocol in _protocols(own):
            library.check_consumer({"group.id": "group", **_MEMBER, **protocol, **own})


def _protocols(own: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the protocols that a user's settings leave; where these contradict each other, so that it is told."""
    wanted = own.get("group.protocol") or next((_PROTOCOL_OF[name] for name in own if name in _PROTOCOL_OF), None)
    left = [protocol for protocol in _PROTOCOLS if wanted in (None, protocol["group.protocol"])]
    return left or list(_PROTOCOLS)
