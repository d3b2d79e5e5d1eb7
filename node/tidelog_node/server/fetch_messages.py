"""Conversions between fetches and gRPC messages. A topic without a name is referred to by its id."""

from __future__ import annotations

from collections.abc import Generator

from tidelog.v1 import log_service_pb2 as pb
from tidelog.v1.common_pb2 import Error, LeaderIdAndEpoch
from tidelog_foundation.errors import error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch
from tidelog_foundation.time_slices import result_at_once
from tidelog_node.fetching import CurrentLeader, FetchRequest, FetchResponse, FetchResult, SessionStep
from tidelog_node.replication.fetch_session import FetchSpec, PartitionKey, TopicRef
from tidelog_node.replication.truncation import EpochEnd


def request_from_proto(request: pb.FetchRequest) -> FetchRequest:
    """Return the request of a message."""
    return result_at_once(request_from_proto_in_steps(request))


def request_from_proto_in_steps(request: pb.FetchRequest) -> Generator[None, None, FetchRequest]:
    """Return the request of a message, converted one partition per step."""
    made, forgotten = _without_partitions(request), []
    for topic in request.topics:
        yield
        ref = topic.name or topic.topic_id
        for item in topic.partitions:
            made.wanted[ref, item.index] = _spec(topic.topic_id, item)
            yield
    for gone in request.forgotten_topics:
        yield
        ref = gone.name or gone.topic_id
        for index in gone.partitions:
            forgotten.append((ref, index))
            yield
    made.forgotten = forgotten
    return made


def request_to_proto(request: FetchRequest) -> pb.FetchRequest:
    """Return the message of a request."""
    topics: dict[TopicRef, pb.FetchTopic] = {}
    for (ref, index), spec in request.wanted.items():
        topic = topics.get(ref)
        if topic is None:
            name = ref if isinstance(ref, str) else ""
            topic = topics[ref] = pb.FetchTopic(name=name, topic_id=spec.topic_id)
        topic.partitions.add(
            index=index,
            fetch_offset=spec.fetch_offset,
            partition_max_bytes=spec.max_bytes,
            current_leader_epoch=spec.leader_epoch,
            last_fetched_epoch=spec.last_fetched_epoch,
            log_start_offset=spec.log_start_offset,
        )
    session, replica = request.session, request.replica
    level = pb.ISOLATION_LEVEL_READ_COMMITTED if request.is_read_committed else pb.ISOLATION_LEVEL_UNSPECIFIED
    return pb.FetchRequest(
        replica=None if replica is None else pb.ReplicaState(replica_id=replica[0], replica_epoch=replica[1]),
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=level,
        rack_id=request.rack_id,
        topics=topics.values(),
        cluster_id=request.cluster_id,
        session=None
        if session is None
        else pb.FetchSession(id=session.id, epoch=session.epoch, ends_wait=session.ends_wait),
        forgotten_topics=[_forgotten(key) for key in request.forgotten],
    )


class _ResponseToProto:
    """Conversion of a response to a message, in one step or many."""

    def __call__(self, response: FetchResponse) -> pb.FetchResponse:
        """Return the message of a response."""
        return result_at_once(self.in_steps(response))

    def in_steps(self, response: FetchResponse) -> Generator[None, None, pb.FetchResponse]:
        """Return the message of a response, converted one topic per step."""
        message = _without_topics(response)
        for ref, results in response.topics.items():
            topic = _add_topic(message, ref)
            for result in results:
                _fill(topic.partitions.add(index=result.index), result)
                yield
        return message


response_to_proto = _ResponseToProto()


def response_from_proto(message: pb.FetchResponse) -> FetchResponse:
    """Return the response of a message."""
    error = error_for(message.error.code, message.error.message) if message.HasField("error") else None
    topics: dict[TopicRef, list[FetchResult]] = {
        topic.name or topic.topic_id: [_result(p) for p in topic.partitions] for topic in message.topics
    }
    return FetchResponse(topics, message.session_id, error, message.throttle_time_ms)


def _without_partitions(request: pb.FetchRequest) -> FetchRequest:
    replica, asked = request.replica, request.session
    return FetchRequest(
        wanted={},
        max_bytes=request.max_bytes,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        replica=(BrokerId(replica.replica_id), BrokerEpoch(replica.replica_epoch))
        if request.HasField("replica")
        else None,
        is_read_committed=request.isolation_level == pb.ISOLATION_LEVEL_READ_COMMITTED,
        rack_id=request.rack_id,
        cluster_id=request.cluster_id,
        session=SessionStep(asked.id, asked.epoch, asked.ends_wait) if request.HasField("session") else None,
        may_read_followers=bool(request.rack_id),
    )


def _spec(topic_id: bytes, item: pb.FetchPartition) -> FetchSpec:
    return FetchSpec(
        topic_id,
        item.fetch_offset,
        item.partition_max_bytes,
        LeaderEpoch(item.current_leader_epoch) if item.HasField("current_leader_epoch") else None,
        LeaderEpoch(item.last_fetched_epoch) if item.HasField("last_fetched_epoch") else None,
        item.log_start_offset,
    )


def _without_topics(response: FetchResponse) -> pb.FetchResponse:
    message = pb.FetchResponse(session_id=response.session_id, throttle_time_ms=response.throttle_time_ms)
    if response.error is not None:
        message.error.CopyFrom(Error(code=response.error.code.code, message=response.error.message))
    return message


def _add_topic(message: pb.FetchResponse, ref: TopicRef) -> pb.FetchTopicResult:
    return message.topics.add(name=ref) if isinstance(ref, str) else message.topics.add(topic_id=ref)


def _forgotten(key: PartitionKey) -> pb.ForgottenTopic:
    ref, index = key
    if isinstance(ref, str):
        return pb.ForgottenTopic(name=ref, partitions=[index])
    return pb.ForgottenTopic(topic_id=ref, partitions=[index])


def _fill(message: pb.FetchPartitionResult, result: FetchResult) -> None:
    message.high_watermark = result.high_watermark
    message.last_stable_offset = result.last_stable_offset
    message.log_start_offset = result.log_start_offset
    if result.error is not None:
        message.error.CopyFrom(Error(code=result.error.code.code, message=result.error.message))
    if result.records:
        message.records = bytes(result.records)
    for producer_id, first_offset in result.aborted or ():
        message.aborted_transactions.add(producer_id=producer_id, first_offset=first_offset)
    if result.diverging is not None:
        message.diverging_epoch.epoch = result.diverging.epoch
        message.diverging_epoch.end_offset = result.diverging.end_offset
    if result.current_leader is not None:
        leader = result.current_leader
        message.current_leader.CopyFrom(LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch))
    if result.preferred_replica is not None:
        message.preferred_read_replica = result.preferred_replica


def _result(message: pb.FetchPartitionResult) -> FetchResult:
    diverging, leader = message.diverging_epoch, message.current_leader
    return FetchResult(
        message.index,
        error_for(message.error.code, message.error.message) if message.HasField("error") else None,
        message.high_watermark,
        message.last_stable_offset,
        message.log_start_offset,
        message.records,
        [(a.producer_id, a.first_offset) for a in message.aborted_transactions],
        EpochEnd(LeaderEpoch(diverging.epoch), diverging.end_offset) if message.HasField("diverging_epoch") else None,
        CurrentLeader(BrokerId(leader.leader_id), LeaderEpoch(leader.leader_epoch))
        if message.HasField("current_leader")
        else None,
        BrokerId(message.preferred_read_replica) if message.HasField("preferred_read_replica") else None,
    )
