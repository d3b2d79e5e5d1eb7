"""The amount of a run's load, and the settings of each kind of client. The user's settings take precedence."""

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
"""The group protocols; the seed of a run selects one."""
_PROTOCOL_OF = {
    "partition.assignment.strategy": "classic",
    "session.timeout.ms": "classic",
    "heartbeat.interval.ms": "classic",
    "group.remote.assignor": "consumer",
}
_INSTANCE = "group.instance.id"
_TRANSACTIONAL_ID, _ISOLATION = "transactional.id", "isolation.level"
_TRANSACTIONAL = {
    "transaction.timeout.ms": 10_000,
    "linger.ms": 1,
    "message.timeout.ms": 10_000,
    "request.timeout.ms": 5_000,
}
_OF_GROUPS = frozenset({"group.id", "group.protocol", *_PROTOCOL_OF})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSettings:
    """The amount of load, the number of clients, and the topics.

    With ``consumers`` None the workload's own number applies. ``producer``, ``consumer`` and ``topic`` are settings
    with dotted names that override the run's own.
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
    """Return the settings of a producer: acknowledged by all and idempotent, unless its ``own`` override that."""
    is_idempotent = own.get("acks") in (None, "all", "-1", -1)
    return {**_PRODUCER, **library.producer_defaults, "enable.idempotence": is_idempotent, **own}


def transactional_config(own: Mapping[str, Any], transactional_id: str) -> dict[str, Any]:
    """Return the settings of a transactional producer. Its records wait no longer than its transaction."""
    return {**_TRANSACTIONAL, _TRANSACTIONAL_ID: transactional_id, **own}


def transactional_consumer(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a consumer of transactions' records."""
    return {**without_group(own), _ISOLATION: "read_committed"}


def group_config(own: Mapping[str, Any], group_id: str, dice: random.Random) -> dict[str, Any]:
    """Return the settings of all members of a group; the dice choose among the protocols that ``own`` permits."""
    return {"group.id": group_id, **_MEMBER, **dice.choice(_protocols(own)), **own}


def member_config(config: Mapping[str, Any], own: Mapping[str, Any], name: str, dice: random.Random) -> dict[str, Any]:
    """Return the settings of one member: the dice decide whether it is static, and whether it commits automatically."""
    chosen: dict[str, Any] = {"enable.auto.commit": dice.random() < 0.5}
    if dice.random() < 0.5:
        chosen[_INSTANCE] = name
    return {**config, **chosen, **own}


def without_group(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a consumer without a group."""
    return {name: value for name, value in own.items() if name not in _OF_GROUPS}


def check_clients(settings: WorkloadSettings, library: Library, workload: str = "queue") -> None:
    """Raise ConfigError for a setting that the library's producers or consumers refuse."""
    own = settings.consumer
    if _TRANSACTIONAL_ID in settings.producer:
        raise ConfigError(f"--producer {_TRANSACTIONAL_ID}: the workload transactions gives each producer its own")
    if workload == "transactions":
        _check_transactional(settings, library)
        return
    if workload == "spark":
        _check_isolation(own, workload)
        library.check_producer(transactional_config(settings.producer, "id"))
        library.check_consumer(transactional_consumer(own))
    library.check_producer(producer_config(settings.producer, library))
    if workload != "subscribe":
        library.check_consumer(own)
    elif _INSTANCE in own:
        raise ConfigError(f"--consumer {_INSTANCE}: members need one each, which the seed gives to some")
    else:
        for protocol in _protocols(own):
            library.check_consumer({"group.id": "group", **_MEMBER, **protocol, **own})


def _check_transactional(settings: WorkloadSettings, library: Library) -> None:
    own = settings.consumer
    _check_isolation(own, "transactions")
    library.check_producer(transactional_config(settings.producer, "id"))
    for protocol in _protocols(own):
        library.check_consumer({"group.id": "group", **_MEMBER, **protocol, **own, "enable.auto.commit": False})


def _check_isolation(own: Mapping[str, Any], workload: str) -> None:
    if own.get(_ISOLATION) not in (None, "read_committed"):
        text = f"--consumer {_ISOLATION}: the workload {workload} reads with read_committed, not {own[_ISOLATION]}"
        raise ConfigError(text)


def _protocols(own: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the protocols that a user's settings permit; contradictory settings stay, so that they are reported."""
    wanted = own.get("group.protocol") or next((_PROTOCOL_OF[name] for name in own if name in _PROTOCOL_OF), None)
    left = [protocol for protocol in _PROTOCOLS if wanted in (None, protocol["group.protocol"])]
    return left or list(_PROTOCOLS)
