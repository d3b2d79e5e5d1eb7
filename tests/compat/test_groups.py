"""One consumer group of several clients: together they read everything once, and any of them goes on where it ended."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

import pytest
from compat.clients.all import CLIENTS, client
from compat.clients.client import Member, wait_for
from compat.clients.record import Record
from compat.cluster import Deployment

PARTITIONS = 8
PYTHON = ("confluent-kafka", "kafka-python", "aiokafka", "kcat")
_INSTALLED = tuple(used for used in PYTHON if used != "kcat")
_RING = tuple(zip(_INSTALLED, (*_INSTALLED[1:], _INSTALLED[0]), strict=True))
PAIRS = [
    pytest.param(*pair, marks=[] if pair in _RING else [pytest.mark.compat])
    for pair in itertools.product(CLIENTS, CLIENTS)
]
"""Every client after every other; by `make test` each installed one once first and once second."""


@contextlib.contextmanager
def members(cluster: Deployment, topic: str, group: str, names: Sequence[str], **config: str) -> Iterator[list[Member]]:
    """Members of a group that has divided the topic's partitions among all of them; they leave in the end."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(Member(client(name), cluster.servers, topic, group, **config)) for name in names]
        wait_for(lambda: _is_divided(made), lambda: f"all partitions assigned once: {_state(made)}")
        yield made


def _is_divided(group: list[Member]) -> bool:
    owned = [partition for member in group for partition in sorted(member.assigned)]
    return sorted(owned) == list(range(PARTITIONS)) and all(member.assigned for member in group)


def _state(group: list[Member]) -> str:
    return ", ".join(f"{member.name} {sorted(member.assigned)} {member.error or ''}" for member in group)


def produce(cluster: Deployment, topic: str, numbers: range) -> set[bytes]:
    records = [Record(b"%d" % n, partition=n % PARTITIONS) for n in numbers]
    client("confluent-kafka").produce(cluster.servers, topic, records)
    return {record.value for record in records if record.value is not None}


def values(group: list[Member]) -> list[bytes | None]:
    return sorted(record.value for member in group for record in member.read if record.value is not None)


def assert_reads(group: list[Member], expected: set[bytes]) -> None:
    """The members read all of it, and nothing twice."""
    wait_for(lambda: len(values(group)) >= len(expected), lambda: f"{len(expected)} records: {values(group)}")
    assert values(group) == sorted(expected)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(PYTHON, id="python"),
        pytest.param((*PYTHON, "java"), id="java", marks=pytest.mark.compat),
        pytest.param(("java", "java"), id="java-alone", marks=pytest.mark.compat),
    ],
)
def test_clients_of_all_kinds_share_a_group(cluster: Deployment, name: str, names: tuple[str, ...]) -> None:
    topic = cluster.create(name, PARTITIONS, replicas=3)
    # A machine without kcat tests the rest.
    there = [used for used in names if used != "kcat" or CLIENTS[used].missing() is None]
    with members(cluster, topic, name, there) as group:
        assert_reads(group, produce(cluster, topic, range(80)))
        assert all(member.read for member in group)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_client_goes_on_where_another_ended(cluster: Deployment, name: str, first: str, second: str) -> None:
    for used in (first, second):
        client(used)
    topic = cluster.create(name, PARTITIONS, replicas=3)
    with members(cluster, topic, name, [first]) as group:
        assert_reads(group, produce(cluster, topic, range(40)))
    expected = produce(cluster, topic, range(40, 60))
    with members(cluster, topic, name, [second]) as group:
        assert_reads(group, expected)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("confluent-kafka", "confluent-kafka"), id="confluent"),
        pytest.param(("confluent-kafka", "java"), id="java", marks=pytest.mark.compat),
    ],
)
def test_clients_share_a_group_of_the_consumer_protocol(cluster: Deployment, name: str, names: tuple[str, ...]) -> None:
    """KIP-848: the broker assigns."""
    topic = cluster.create(name, PARTITIONS, replicas=3)
    with members(cluster, topic, name, names, group_protocol="consumer") as group:
        assert_reads(group, produce(cluster, topic, range(80)))
    expected = produce(cluster, topic, range(80, 100))
    with members(cluster, topic, name, names[-1:], group_protocol="consumer") as group:
        assert_reads(group, expected)
