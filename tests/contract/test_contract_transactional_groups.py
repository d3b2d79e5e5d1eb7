"""Members of groups wait for the offsets of open transactions, whatever happens to their assignment meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from group_members import Member, keys_of, shared, until

from tidelog import TopicPartition

Deployment = Any
_RECORDS, _COMMITTED, _PENDING = 30, 10, 20


@pytest.mark.parametrize("ends_well", [True, False], ids=["committed", "aborted"])
@pytest.mark.parametrize(
    "protocol",
    [
        {"partition_assignment_strategy": "range"},
        {"partition_assignment_strategy": "cooperative-sticky"},
        {"group_protocol": "consumer"},
    ],
    ids=["range", "cooperative-sticky", "consumer"],
)
def test_member_that_is_assigned_anew_while_offsets_are_unstable_begins_at_the_stable_ones(
    group_cluster: Deployment, join: Callable[..., Member], protocol: dict[str, str], ends_well: bool
) -> None:
    topic = group_cluster.topic(partitions=2)
    for partition in range(2):
        group_cluster.send(topic, [b"%d" % number for number in range(_RECORDS)], partition)
    producer = group_cluster.producer(transactional_id=topic)
    producer.init_transactions(30)
    metadata = join().consumer.consumer_group_metadata()
    with producer.transaction():
        producer.send_offsets_to_transaction(_both(topic, _COMMITTED), metadata, 30)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(_both(topic, _PENDING), metadata, 30)
    first = join(topic, **protocol)
    until([first], lambda: first.owned == keys_of(topic, 2))
    second = join(topic, **protocol)
    members = [first, second]
    until(members, lambda: shared(members, keys_of(topic, 2)))
    # Nothing may come while the offsets are unstable; what would come, comes within a few polls.
    deadline = time.monotonic() + 0.5
    until(members, lambda: time.monotonic() > deadline)
    assert [message for member in members for message in member.messages] == []
    (producer.commit_transaction if ends_well else producer.abort_transaction)(30)
    producer.close()
    start = _PENDING if ends_well else _COMMITTED
    until(members, lambda: sum(len(member.messages) for member in members) >= 2 * (_RECORDS - start))
    for member in members:
        assert [message.offset() for message in member.messages] == list(range(start, _RECORDS))


def _both(topic: str, offset: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for partition in range(2)]
