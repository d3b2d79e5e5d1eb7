"""Brokers that are behind their cluster: a mirror takes no old leaders, positions, ends or offsets of groups from them.

Such a broker has just begun to lead, has not heard of a topic, or has been cut off and replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import pytest
from memory_mirror_cluster import ADDRESS, MemoryCluster

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import LeaderEpoch
from tidelog_foundation.link_settings import parse_link_settings
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_mirror import internal_topics, source_reader
from tidelog_mirror.cluster import Group, MirrorCluster
from tidelog_mirror.copying import FlowCopier
from tidelog_mirror.flow_worker import FlowWorker
from tidelog_mirror.internal_records import Checkpoint, encode_position
from tidelog_mirror.internal_topics import create_compacted, read_topic
from tidelog_mirror.positions import partition_of
from tidelog_mirror.settings import Flow, parse_mirror_settings
from tidelog_node.kafka.protocol.fields import Message
from tidelog_node.kafka.protocol.messages import metadata

T = TypeVar("T")
POSITIONS = "mm2-offsets.A.internal"


def flow(**settings: str) -> Flow:
    keys = {key.replace("_", "."): value for key, value in settings.items()}
    servers = {"A.bootstrap.servers": ADDRESS, "B.bootstrap.servers": ADDRESS}
    raw = {"clusters": "A, B", "A->B.enabled": "true", "A->B.topics": "t", **servers, **keys}
    return next(each for each in parse_mirror_settings(raw).flows if each.config.enabled)


def batch(*pairs: tuple[bytes, bytes]) -> bytes:
    builder = RecordBatchBuilder()
    for key, value in pairs:
        builder.append(key, value, (), 1_000)
    return builder.build()


async def all_of(cluster: MirrorCluster, ends: Mapping[int, int] | None = None) -> list[bytes | None]:
    return [value async for _, value in read_topic(cluster, "t", ends)]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the condition is in many places
            await asyncio.sleep(0.001)


def within(work: Awaitable[T]) -> T:
    async def run() -> T:
        async with asyncio.timeout(20):
            return await work

    return asyncio.run(run())


class TwoBrokers(MirrorCluster):
    """A cluster whose brokers give prepared answers to requests of metadata."""

    def __init__(self, answers: Mapping[str, tuple[int, int]]) -> None:
        super().__init__(parse_link_settings({"bootstrap.servers": "one:1"}), "test")
        self._answers = answers
        self.called: list[str] = []

    async def _call(self, address: str, message: Message, answer: object, versions: object = None) -> object:
        self.called.append(address)
        leader, epoch = self._answers[address]
        partition = metadata.MetadataResponsePartition(0, 0, leader, epoch, [], [], [])
        topic = metadata.MetadataResponseTopic(0, "t", bytes(16), is_internal=False, partitions=[partition])
        brokers = [metadata.MetadataResponseBroker(1, "one", 1), metadata.MetadataResponseBroker(2, "two", 2)]
        return metadata.MetadataResponse(brokers=brokers, topics=[topic])


def test_a_leader_of_an_older_epoch_than_one_before_is_no_leader() -> None:
    cluster = TwoBrokers({"one:1": (1, 4), "two:2": (2, 5)})

    async def leaders() -> list[tuple[str, LeaderEpoch] | None]:
        return [(await cluster.describe(["t"])).leader("t", 0) for _ in range(3)]

    # Each description begins with another broker, so that the mirror leaves one that its cluster has lost.
    assert within(leaders()) == [("one:1", 4), ("two:2", 5), None]
    assert cluster.called == ["one:1", "two:2", "one:1"]


def test_a_topic_is_read_to_its_end_although_its_new_leader_does_not_serve_all_of_it_at_first() -> None:
    cluster = MemoryCluster({"t": 1})
    for value in (b"1", b"2", b"3"):
        cluster.append(("t", 0), batch((b"k", value)))
    cluster.behind["t", 0] = [1, 1, 2]
    assert within(all_of(cluster)) == [b"1", b"2", b"3"]


def test_a_topic_without_the_offset_that_it_must_have_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_topics, "_TIMEOUT_S", 0.05)
    cluster = MemoryCluster({"t": 1})
    cluster.append(("t", 0), batch((b"k", b"1")))
    with pytest.raises(TidelogError, match="t-0 ends at 1 on its leader broker:9092, and not at 2") as caught:
        within(all_of(cluster, {0: 2}))
    assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE


def test_a_topic_that_a_broker_does_not_know_is_an_error_and_not_empty() -> None:
    cluster = MemoryCluster({"t": 1})
    cluster.unknown = [{"t"}]
    with pytest.raises(TidelogError) as caught:
        within(all_of(cluster))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_throttled_fetch_of_a_topic_is_repeated() -> None:
    cluster = MemoryCluster({"t": 1})
    cluster.append(("t", 0), batch((b"k", b"1")))
    cluster.throttled_fetches = 2
    assert within(all_of(cluster)) == [b"1"]


def test_a_topic_that_exists_keeps_its_partitions_although_a_broker_does_not_know_it() -> None:
    cluster = MemoryCluster({"t": 25})
    cluster.unknown = [{"t"}, {"t"}]
    assert within(create_compacted(cluster, "t", 3, 1)) == 25


def test_positions_are_not_those_of_a_leader_that_its_cluster_has_lost() -> None:
    source, target = MemoryCluster({"t": 1}), MemoryCluster({POSITIONS: 2, "A.t": 1})
    key, old = encode_position("A", "t", 0, 9)
    where = POSITIONS, partition_of(key, 2)
    target.append(where, batch((key, old)))
    target.append(where, batch(encode_position("A", "t", 0, 19)))
    # The leader has the first position alone, until another one leads.
    target.behind[where] = [1, 1, 1]
    copier = FlowCopier(flow(exactly_once_source_support="enabled"), source, target, lambda _: None)

    async def positions() -> list[int | None]:
        running = asyncio.create_task(copier.run())
        await until(lambda: copier.reader.partitions or copier._positions is not None)
        copier.assign({("t", 0): "A.t"})
        found = [copy.position for copy in copier.reader.partitions.values()]
        copier.stop()
        await running
        return found

    assert within(positions()) == [20]


def test_a_partition_that_is_unknown_for_a_time_keeps_its_lane() -> None:
    source, target = MemoryCluster({"t": 1}), MemoryCluster({POSITIONS: 2, "A.t": 1})
    copier = FlowCopier(flow(), source, target, lambda _: None)

    async def copies() -> tuple[object, object, list[bytes | None]]:
        running = asyncio.create_task(copier.run())
        await until(lambda: copier._positions is not None)
        copier.assign({("t", 0): "A.t"})
        first = copier.reader.partitions["t", 0]
        source.append(("t", 0), batch((b"k", b"1")))
        await until(lambda: first.copied == 1)
        copier.assign({})
        copier.assign({("t", 0): "A.t"})
        source.append(("t", 0), batch((b"k", b"2")))
        await until(lambda: target.end(("A.t", 0)) == 2)
        copier.stop()
        await running
        values = [value async for _, value in read_topic(target, "A.t")]
        return first, copier.reader.partitions["t", 0], values

    first, second, values = within(copies())
    assert first is second
    assert first.lane.sequence == 2  # type: ignore[attr-defined]
    assert values == [b"1", b"2"]


@pytest.mark.parametrize("has_source_lost_records", [False, True])
def test_a_leader_without_the_position_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, has_source_lost_records: bool
) -> None:
    monkeypatch.setattr(source_reader, "_LONG_BACKOFF_S", 0.005)
    monkeypatch.setattr(source_reader, "_LOST_LEADER_S", 0.05 if has_source_lost_records else 30.0)
    source, target = MemoryCluster({"t": 1}), MemoryCluster({POSITIONS: 1, "A.t": 1})
    for number in range(4):
        source.append(("t", 0), batch((b"k", b"%d" % number)))
    source.behind["t", 0] = [2] * (10_000 if has_source_lost_records else 5)
    target.append((POSITIONS, 0), batch(encode_position("A", "t", 0, 2)))
    copier = FlowCopier(flow(), source, target, lambda _: None)

    async def copied() -> list[bytes | None]:
        running = asyncio.create_task(copier.run())
        await until(lambda: copier._positions is not None)
        copier.assign({("t", 0): "A.t"})
        await until(lambda: target.end(("A.t", 0)))
        copier.stop()
        await running
        return [value async for _, value in read_topic(target, "A.t")]

    assert within(copied())[:2] == ([b"0", b"1"] if has_source_lost_records else [b"3"])


def test_a_failure_of_a_fetch_that_does_not_pass_is_one_error() -> None:
    class Refusing(MemoryCluster):
        async def fetch(self, *_: object) -> object:  # type: ignore[override]
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, "too old")

    source, target = Refusing({"t": 1}), MemoryCluster({POSITIONS: 1, "A.t": 1})
    copier = FlowCopier(flow(), source, target, lambda _: None)

    async def failures() -> int:
        running = asyncio.create_task(copier.run())
        await until(lambda: copier._positions is not None)
        copier.assign({("t", 0): "A.t"})
        # The copying ends and will start again.
        await until(lambda: copier.failures)
        copier.stop()
        await running
        return copier.failures

    assert within(failures()) == 1


def test_a_group_that_a_list_lacks_keeps_its_later_offsets() -> None:
    source, target = MemoryCluster({"t": 1}), MemoryCluster({"A.t": 1})
    worker = FlowWorker(flow(sync_group_offsets_enabled="true"), source, target)
    worker._groups = ["g"]
    worker.checkpoints.add(Checkpoint("g", "A.t", 0, 9, 5, ""))
    target.committed_offsets["g"] = {("A.t", 0): 8}
    within(worker._sync_group_offsets())
    assert target.committed_offsets["g"] == {("A.t", 0): 8}
    target.committed_offsets["g"] = {("A.t", 0): 3}
    target.groups_listed["g"] = Group("consumer", "Stable")
    within(worker._sync_group_offsets())
    assert target.committed_offsets["g"] == {("A.t", 0): 3}
    target.groups_listed["g"] = Group("consumer", "Empty")
    within(worker._sync_group_offsets())
    assert target.committed_offsets["g"] == {("A.t", 0): 5}
