"""Questions for committed offsets of a member whose epoch passes meanwhile (KIP-848)."""

from __future__ import annotations

import time

import pytest
from scripted_groups import ScriptedGroups, error

from tidelog import Consumer, KafkaException, TopicPartition
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode

FOUND = pb.OffsetFetchPartitionResult(index=0, committed_offset=7)


def fetch(node: ScriptedGroups, refused: int, silent_after: int = 1_000_000) -> int:
    """Let the first answers be that the epoch is old; return the offset that is found then."""

    def answer(request: pb.OffsetFetchRequest) -> pb.OffsetFetchResponse:
        if node.calls["OffsetFetch"] > silent_after:
            time.sleep(1.5)
        if node.calls["OffsetFetch"] <= refused:
            group = pb.OffsetFetchGroupResult(group_id="g", error=error(ErrorCode.STALE_MEMBER_EPOCH))
        else:
            topic = pb.OffsetFetchTopicResult(name="t", partitions=[FOUND])
            group = pb.OffsetFetchGroupResult(group_id="g", topics=[topic])
        return pb.OffsetFetchResponse(groups=[group])

    node.answers["OffsetFetch"] = answer
    settings = {"bootstrap.servers": node.bootstrap_servers, "group.id": "g", "group.protocol": "consumer"}
    with Consumer(settings) as consumer:
        return consumer.committed([TopicPartition("t", 0)], timeout=1)[0].offset


def test_committed_asks_again_when_the_epoch_of_the_member_has_passed() -> None:
    with ScriptedGroups() as node:
        assert fetch(node, refused=2) == 7


def test_committed_raises_when_the_epoch_stays_old() -> None:
    with ScriptedGroups() as node, pytest.raises(KafkaException, match="STALE_MEMBER_EPOCH"):
        fetch(node, refused=1_000_000)


def test_committed_tells_that_the_epoch_was_old_also_when_the_last_attempt_has_no_answer() -> None:
    with ScriptedGroups() as node, pytest.raises(KafkaException, match="STALE_MEMBER_EPOCH"):
        fetch(node, refused=1_000_000, silent_after=2)
