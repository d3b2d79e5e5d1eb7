"""Elections through the admin service: a request for many partitions is written and answered in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from request_values import code_of
from topic_ids import SequentialTopicIds

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.ids import BrokerId, TopicId
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.partitions import ElectLeadersRequest, TopicPartitions
from tidelog_quorum.controller import elect_leaders
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.metadata.codec import decode_batch
from tidelog_quorum.metadata.records import PartitionChangeRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from tidelog_quorum.raft.core.endpoints import ANY_LISTENER
from tidelog_quorum.server.metadata_feed import MetadataFeed
from tidelog_quorum.server.quorum_controller import QuorumController
from tidelog_quorum.server.services import AdminCalls

TOPIC_ID = TopicId(b"0123456789abcdef")


@pytest.mark.parametrize("asks_for_all", [True, False])
def test_election_of_many_partitions_is_written_in_slices_and_answered_as_one(
    new_raft: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, asks_for_all: bool
) -> None:
    monkeypatch.setattr(elect_leaders, "PARTITIONS_PER_SLICE", 2)
    records = [
        *(RegisterBrokerRecord(BrokerId(b), b"i" * 16, 0, Endpoint("h", b), fenced=False) for b in (1, 2)),
        TopicRecord("t", TOPIC_ID),
        *(PartitionRecord(TOPIC_ID, i, (1, 2), (1, 2), leader=2) for i in range(5)),
    ]
    named = [TopicPartitions(name="t", partitions=(0, 1, 2, 3, 4, 5))]
    request = ElectLeadersRequest(all_partitions=asks_for_all, topics=() if asks_for_all else tuple(named))

    async def test() -> None:
        raft = new_raft()
        controller = Controller(ControllerConfig("c1"), SequentialTopicIds())
        quorum = QuorumController(controller, raft, MetadataFeed(), 9_000, lambda: 0)
        await raft.start(quorum)
        raft.elect(1)
        await quorum.submit(lambda c, now_ms: Result(records, None))
        before = len(raft.log)
        async with asyncio.timeout(10):
            response = await AdminCalls("c1", quorum, ANY_LISTENER, ()).elect_leaders(request)

        [topic] = response.topics
        codes = {p.index: code_of(p.error) for p in topic.partitions}
        unknown = {} if asks_for_all else {5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert codes == dict.fromkeys(range(5), ErrorCode.NONE) | unknown
        written = [decode_batch(e.payload) for e in raft.log[before:]]
        assert [len(entry) for entry in written] == [2, 2, 1]
        assert all(isinstance(r, PartitionChangeRecord) and r.leader == 1 for entry in written for r in entry)

    asyncio.run(test())
