"""Consumers share topics by groups: partitions have one owner each, and what is committed is where the next goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from group_members import Key, Member, keys_of, shared, until

from tidelog import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

Deployment = Any


def test_a_group_reads_everything_once_and_the_next_member_goes_on_there(
    group_cluster: Deployment, join: Callable[..., Member]
) -> None:
    topic = group_cluster.topic(partitions=3)
    for partition in range(3):
        group_cluster.send(topic, [b"%d-%d" % (partition, n) for n in range(20)], partition)
    first = join(topic)
    until([first], lambda: len(first.messages) == 60)
    assert first.told == [("assign", keys_of(topic, 3))]
    assert first.consumer.memberid()
    first.consumer.close()
    assert first.told[1:] == [("revoke", keys_of(topic, 3))]
    group_cluster.send(topic, [b"new"], 1)
    second = join(topic)
    until([second], lambda: bool(second.messages))
    assert second.values == [b"new"]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_come_and_go_and_every_partition_has_one_owner(
    group_cluster: Deployment, join: Callable[..., Member], strategy: str
) -> None:
    topic = group_cluster.topic(partitions=6)
    keys = keys_of(topic, 6)
    members = [join(topic, partition_assignment_strategy=strategy) for _ in range(2)]
    until(members, lambda: shared(members, keys))
    members.append(join(topic, partition_assignment_strategy=strategy))
    until(members, lambda: shared(members, keys))
    members.pop(0).consumer.close()
    until(members, lambda: shared(members, keys))


def test_a_cooperative_rebalance_takes_only_what_moves(group_cluster: Deployment, join: Callable[..., Member]) -> None:
    topic = group_cluster.topic(partitions=4)
    first = join(topic, partition_assignment_strategy="cooperative-sticky")
    until([first], lambda: first.owned == keys_of(topic, 4))
    second = join(topic, partition_assignment_strategy="cooperative-sticky")
    until([first, second], lambda: shared([first, second], keys_of(topic, 4)))
    revoked = [partitions for what, partitions in first.told if what == "revoke"]
    assert [len(partitions) for partitions in revoked] == [2]
    assert revoked[0] == second.owned


def test_the_protocol_of_the_coordinator_shares_partitions_in_steps(
    group_cluster: Deployment, join: Callable[..., Member]
) -> None:
    topic = group_cluster.topic(partitions=4)
    group_cluster.send(topic, [b"a", b"b"], 2)
    first = join(topic, group_protocol="consumer")
    until([first], lambda: first.owned == keys_of(topic, 4) and len(first.messages) == 2)
    assert first.consumer.commit(asynchronous=False) == [TopicPartition(topic, 2)]
    second = join(topic, group_protocol="consumer")
    until([first, second], lambda: shared([first, second], keys_of(topic, 4)))
    assert set().union(*(p for what, p in first.told if what == "revoke")) == second.owned
    first.consumer.close()
    until([second], lambda: second.owned == keys_of(topic, 4))
    group_cluster.send(topic, [b"c"], 2)
    until([second], lambda: bool(second.messages))
    assert second.values == [b"c"]


def test_what_was_read_before_a_rebalance_is_not_read_again(
    group_cluster: Deployment, join: Callable[..., Member]
) -> None:
    topic = group_cluster.topic(partitions=4)
    for partition in range(4):
        group_cluster.send(topic, [b"%d-%d" % (partition, n) for n in range(50)], partition)
    first = join(topic)
    until([first], lambda: len(first.messages) == 200)
    second = join(topic)
    until([first, second], lambda: shared([first, second], keys_of(topic, 4)))
    for partition in range(4):
        group_cluster.send(topic, [b"new"], partition)
    until([first, second], lambda: len(first.messages) + len(second.messages) >= 204)
    assert sorted(first.values[200:] + second.values) == [b"new"] * 4


def test_no_message_of_a_partition_follows_its_revocation(
    group_cluster: Deployment, join: Callable[..., Member]
) -> None:
    topic = group_cluster.topic(partitions=2)
    for partition in (0, 1):
        group_cluster.send(topic, [b"%d" % n for n in range(400)], partition, batch_num_messages=10)
    first = join()
    owned: set[Key] = set()
    first.consumer.subscribe(
        [topic],
        lambda _, partitions: owned.update((p.topic, p.partition) for p in partitions),
        lambda _, partitions: owned.difference_update({(p.topic, p.partition) for p in partitions}),
    )
    second = None
    deadline = time.monotonic() + 20
    while second is None or len(owned) != 1:
        assert time.monotonic() < deadline
        for message in first.consumer.consume(7, 0.02):
            assert not message.error()
            first.messages.append(message)
            assert (message.topic(), message.partition()) in owned
        if len(first.messages) > 20 and second is None:
            second = join(topic)
        if second is not None:
            second.poll(0.01)


def test_callbacks_may_assign_other_offsets(group_cluster: Deployment, join: Callable[..., Member]) -> None:
    topic = group_cluster.topic(partitions=2)
    for partition in (0, 1):
        group_cluster.send(topic, [b"%d" % n for n in range(10)], partition)
    for strategy, method in (("range", "assign"), ("cooperative-sticky", "incremental_assign")):
        member = join(partition_assignment_strategy=strategy)

        def on_assign(consumer: Consumer, partitions: list[TopicPartition], method: str = method) -> None:
            getattr(consumer, method)([TopicPartition(p.topic, p.partition, 7) for p in partitions])

        member.consumer.subscribe([topic], on_assign)
        until([member], lambda member=member: len(member.messages) == 6)
        assert {m.offset() for m in member.messages} == {7, 8, 9}
        member.consumer.close()


def test_what_a_callback_raises_comes_out_of_poll_and_the_rebalance_goes_on(
    group_cluster: Deployment, join: Callable[..., Member]
) -> None:
    topic = group_cluster.topic()
    group_cluster.send(topic, [b"v"])
    member = join()

    def fail(_: Consumer, partitions: list[TopicPartition]) -> None:
        raise ZeroDivisionError(f"of {len(partitions)}")

    member.consumer.subscribe([topic], fail)
    with pytest.raises(ZeroDivisionError, match="of 1"):
        until([member], lambda: False)
    until([member], lambda: bool(member.messages))


def test_commits_of_every_kind_are_found_again(group_cluster: Deployment, join: Callable[..., Member]) -> None:
    topic = group_cluster.topic(partitions=2)
    group_cluster.send(topic, [b"%d" % n for n in range(10)])
    told: list[tuple[KafkaError | None, list[TopicPartition]]] = []
    member = join(topic, enable_auto_commit=False, on_commit=lambda error, ps: told.append((error, ps)))
    consumer, partition = member.consumer, TopicPartition(topic, 0)

    def committed() -> tuple[int, str | None]:
        [found] = consumer.committed([partition], timeout=10)
        assert found.error is None
        return found.offset, found.metadata

    until([member], lambda: len(member.messages) == 10)
    assert committed() == (OFFSET_INVALID, None)
    [done] = consumer.commit(member.messages[2], asynchronous=False)
    assert (done.offset, done.error, committed()) == (3, None, (3, None))
    consumer.commit(offsets=[TopicPartition(topic, 0, 5, metadata="half")], asynchronous=False)
    assert committed() == (5, "half")
    assert [p.offset for p in consumer.commit(asynchronous=False)] == [10]
    with pytest.raises(KafkaException, match="_NO_OFFSET"):
        consumer.commit(asynchronous=False)
    assert told == []
    for n in range(9):
        consumer.commit(member.messages[n])
    until([member], lambda: len(told) == 9)
    assert [(error, ps[0].offset) for error, ps in told] == [(None, n) for n in range(1, 10)]
    assert committed() == (9, None)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PARTITION"):
        consumer.commit(offsets=[TopicPartition("nowhere", 0, 5)], asynchronous=False)
    both = consumer.commit(offsets=[TopicPartition("nowhere", 0, 5), TopicPartition(topic, 0, 6)], asynchronous=False)
    assert [p.error is None for p in both] == [False, True]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_a_callback_commits_before_partitions_go_is_where_the_next_owner_starts(
    group_cluster: Deployment, join: Callable[..., Member], protocol: str
) -> None:
    topic = group_cluster.topic(partitions=2)
    for partition in (0, 1):
        group_cluster.send(topic, [b"%d" % n for n in range(10)], partition)
    first = join(enable_auto_commit=False, group_protocol=protocol)
    committed: list[TopicPartition] = []

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        positions = [p for p in consumer.position(partitions) if p.offset != OFFSET_INVALID]
        committed.extend(consumer.commit(offsets=positions, asynchronous=False))

    first.consumer.subscribe([topic], on_revoke=on_revoke)
    until([first], lambda: len(first.messages) == 20)
    second = join(topic, enable_auto_commit=False, group_protocol=protocol)
    until([first, second], lambda: shared([first, second], keys_of(topic, 2)))
    assert {(p.topic, p.partition) for p in committed} >= second.owned
    assert [p.offset for p in committed] == [10] * len(committed)
    for partition in (0, 1):
        group_cluster.send(topic, [b"new"], partition)
    until([first, second], lambda: len(first.messages) + len(second.messages) == 22)
    assert second.values == [b"new"]


def test_a_consumer_without_subscription_commits_for_its_group(
    group_cluster: Deployment, join: Callable[..., Member]
) -> None:
    topic = group_cluster.topic()
    group_cluster.send(topic, [b"%d" % n for n in range(10)])
    first = join()
    first.consumer.assign([TopicPartition(topic, 0, 4)])
    until([first], lambda: len(first.messages) == 6)
    first.consumer.unassign()
    until([first], lambda: first.consumer.committed([TopicPartition(topic, 0)], 10)[0].offset == 10)
    second = join()
    second.consumer.assign([TopicPartition(topic, 0)])
    group_cluster.send(topic, [b"new"])
    until([second], lambda: bool(second.messages))
    assert second.values == [b"new"]


def test_stored_offsets_are_what_is_committed(group_cluster: Deployment, join: Callable[..., Member]) -> None:
    topic = group_cluster.topic()
    group_cluster.send(topic, [b"%d" % n for n in range(10)])
    first = join(topic, enable_auto_offset_store=False)
    until([first], lambda: len(first.messages) == 10)
    first.consumer.store_offsets(first.messages[3])
    first.consumer.store_offsets(offsets=[TopicPartition(topic, 0, 6)])
    with pytest.raises(KafkaException, match=r"_UNKNOWN_PARTITION.*other-0"):
        first.consumer.store_offsets(offsets=[TopicPartition("other", 0, 6)])
    first.consumer.close()
    second = join(topic)
    until([second], lambda: len(second.messages) == 4)
    assert second.values == [b"6", b"7", b"8", b"9"]


def test_stored_offsets_are_committed_as_time_passes(group_cluster: Deployment, join: Callable[..., Member]) -> None:
    topic = group_cluster.topic()
    group_cluster.send(topic, [b"a", b"b"])
    member = join(topic, auto_commit_interval_ms=50)
    until([member], lambda: len(member.messages) == 2)
    until([member], lambda: member.consumer.committed([TopicPartition(topic, 0)], 10)[0].offset == 2)


@pytest.mark.parametrize(("reset", "expected"), [("earliest", [b"old", b"new"]), ("latest", [b"new"])])
def test_a_group_without_offsets_starts_where_auto_offset_reset_says(
    group_cluster: Deployment, join: Callable[..., Member], reset: str, expected: list[bytes]
) -> None:
    topic = group_cluster.topic()
    group_cluster.send(topic, [b"old"])
    member = join(topic, auto_offset_reset=reset, enable_partition_eof=True)
    until([member], lambda: bool(member.errors))
    group_cluster.send(topic, [b"new"])
    until([member], lambda: member.values[-1:] == [b"new"])
    assert member.values == expected


def test_a_group_without_offsets_and_without_a_reset_is_told(
    group_cluster: Deployment, join: Callable[..., Member]
) -> None:
    topic = group_cluster.topic()
    member = join(topic, auto_offset_reset="none")
    until([member], lambda: bool(member.errors))
    error = member.errors[0].error()
    assert error is not None
    assert error.name() == "_AUTO_OFFSET_RESET"
    member.consumer.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
    group_cluster.send(topic, [b"v"])
    until([member], lambda: member.values == [b"v"])


def test_patterns_find_topics_that_come_later(group_cluster: Deployment, join: Callable[..., Member]) -> None:
    first, second = (group_cluster.topic() for _ in range(2))
    found, ignored = {f"re-{first}", f"re-{second}"}, f"re-not-{first}"
    group_cluster.create(f"re-{first}", ignored)
    member = join("^re-contract", metadata_max_age_ms=100, topic_blacklist="not")
    until([member], lambda: member.owned == {(f"re-{first}", 0)})
    group_cluster.create(f"re-{second}")
    until([member], lambda: member.owned == {(name, 0) for name in found})


def test_a_topic_that_is_missing_is_told_and_read_when_it_is_there(
    group_cluster: Deployment, join: Callable[..., Member]
) -> None:
    name = f"late-{group_cluster.topic()}"
    member = join(name)
    until([member], lambda: bool(member.errors))
    assert (member.errors[0].error(), member.errors[0].topic()) == (KafkaError.UNKNOWN_TOPIC_OR_PART, name)  # type: ignore[attr-defined]
    group_cluster.create(name)
    group_cluster.send(name, [b"v"])
    until([member], lambda: member.values == [b"v"])


def test_seek_and_pause_work_in_a_group(group_cluster: Deployment, join: Callable[..., Member]) -> None:
    topic = group_cluster.topic(partitions=2)
    for partition in (0, 1):
        group_cluster.send(topic, [b"%d" % n for n in range(5)], partition)
    member = join(topic)
    until([member], lambda: len(member.messages) == 10)
    member.consumer.pause([TopicPartition(topic, 0)])
    member.consumer.seek(TopicPartition(topic, 0, 3))
    member.consumer.seek(TopicPartition(topic, 1, 4))
    until([member], lambda: len(member.messages) == 11)
    assert [(m.partition(), m.value()) for m in member.messages[10:]] == [(1, b"4")]
    member.consumer.resume([TopicPartition(topic, 0)])
    until([member], lambda: len(member.messages) == 13)
    assert [(m.partition(), m.value()) for m in member.messages[11:]] == [(0, b"3"), (0, b"4")]


def test_unsubscribe_revokes_and_another_subscription_takes_its_place(
    group_cluster: Deployment, join: Callable[..., Member]
) -> None:
    first, second = group_cluster.topic(), group_cluster.topic()
    member = join(first)
    until([member], lambda: member.owned == {(first, 0)})
    member.subscribe(second)
    until([member], lambda: member.owned == {(second, 0)})
    member.consumer.unsubscribe()
    until([member], lambda: not member.owned)
    assert member.told[-1] == ("revoke", {(second, 0)})
    member.subscribe(first)
    until([member], lambda: member.owned == {(first, 0)})
