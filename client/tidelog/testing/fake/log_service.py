"""LogService of the fake: produce, fetch with long polls, offsets, metadata, leader epochs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import grpc

from tidelog.testing.fake.describe_producers import describe_producers
from tidelog.testing.fake.faults import Fault, Gate, error_message
from tidelog.testing.fake.fetch_sessions import FakeSessions
from tidelog.testing.fake.log_dirs import alter_replica_log_dirs, describe_log_dirs
from tidelog.testing.fake.partition import NOT_FOUND, FakePartition, FoundOffset
from tidelog.testing.fake.topics import NODE_ID, FakeTopic, TopicTable
from tidelog.v1 import log_service_pb2, log_service_pb2_grpc
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import UNKNOWN_OFFSET

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """Who the fake says it is."""

    cluster_id: str
    host: str
    port: int
    auto_create_topics: bool


@dataclass(slots=True)
class _Reading:
    # One look at all partitions of a fetch: stops the long poll when there is enough, or an error.
    response: log_service_pb2.FetchResponse = field(default_factory=log_service_pb2.FetchResponse)
    size: int = 0
    failed: bool = False


def topic_metadata(topic: FakeTopic) -> log_service_pb2.TopicMetadata:
    """Return the metadata of a topic whose partitions are all led by the one node."""
    return log_service_pb2.TopicMetadata(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            log_service_pb2.PartitionMetadata(
                index=index,
                leader_id=NODE_ID,
                leader_epoch=partition.leader_epoch,
                replica_nodes=[NODE_ID],
                isr_nodes=[NODE_ID],
            )
            for index, partition in enumerate(topic.partitions)
        ],
    )


class LogServicer(log_service_pb2_grpc.LogServiceServicer):
    """Answers on the server's threads; `TopicTable.changed` guards all state."""

    def __init__(self, table: TopicTable, gate: Gate, info: NodeInfo) -> None:
        self._table = table
        self._gate = gate
        self._info = info
        self._producer_ids = itertools.count()
        self._sessions = FakeSessions()
        self._stopping = False

    def stop(self) -> None:
        """Let the long polls answer at once."""
        with self._table.changed:
            self._stopping = True
            self._table.changed.notify_all()

    def Produce(  # noqa: N802
        self, request: log_service_pb2.ProduceRequest, context: grpc.ServicerContext
    ) -> log_service_pb2.ProduceResponse:
        """Append each partition's batch."""
        return self._gate.serve("Produce", context, lambda fault: self._produce(request, fault))

    def ProduceStream(  # noqa: N802
        self, request_iterator: Iterator[log_service_pb2.ProduceStreamRequest], context: grpc.ServicerContext
    ) -> Iterator[log_service_pb2.ProduceStreamResponse]:
        """Do the same for each request of the stream, in order; the faults are those of Produce."""
        for message in request_iterator:
            response = self.Produce(message.request, context)
            yield log_service_pb2.ProduceStreamResponse(correlation_id=message.correlation_id, response=response)

    def Fetch(  # noqa: N802
        self, request: log_service_pb2.FetchRequest, context: grpc.ServicerContext
    ) -> log_service_pb2.FetchResponse:
        """Read batches; wait up to max_wait_ms for min_bytes."""
        return self._gate.serve("Fetch", context, lambda fault: self._fetch(request, context, fault))

    def ListOffsets(  # noqa: N802
        self, request: log_service_pb2.ListOffsetsRequest, context: grpc.ServicerContext
    ) -> log_service_pb2.ListOffsetsResponse:
        """Find offsets by timestamp, or the first and the last one."""
        return self._gate.serve("ListOffsets", context, lambda fault: self._list_offsets(request, fault))

    def GetMetadata(  # noqa: N802
        self, request: log_service_pb2.GetMetadataRequest, context: grpc.ServicerContext
    ) -> log_service_pb2.GetMetadataResponse:
        """Describe the one node and the topics asked for."""
        return self._gate.serve("GetMetadata", context, lambda fault: self._get_metadata(request, fault))

    def OffsetForLeaderEpoch(  # noqa: N802
        self, request: log_service_pb2.OffsetForLeaderEpochRequest, context: grpc.ServicerContext
    ) -> log_service_pb2.OffsetForLeaderEpochResponse:
        """Return the end offset of each leader epoch asked for."""
        return self._gate.serve("OffsetForLeaderEpoch", context, lambda fault: self._end_of_epochs(request, fault))

    def DeleteRecords(  # noqa: N802
        self, request: log_service_pb2.DeleteRecordsRequest, context: grpc.ServicerContext
    ) -> log_service_pb2.DeleteRecordsResponse:
        """Delete the beginning of each partition; the one replica has it done at once."""
        return self._gate.serve("DeleteRecords", context, lambda fault: self._delete_records(request, fault))

    def DescribeLogDirs(  # noqa: N802
        self, request: log_service_pb2.DescribeLogDirsRequest, context: grpc.ServicerContext
    ) -> log_service_pb2.DescribeLogDirsResponse:
        """Describe the one directory that there would be."""
        return self._gate.serve("DescribeLogDirs", context, lambda fault: describe_log_dirs(self._table, request))

    def InitProducerId(  # noqa: N802
        self, request: log_service_pb2.InitProducerIdRequest, context: grpc.ServicerContext
    ) -> log_service_pb2.InitProducerIdResponse:
        """Give an id that no producer has had."""
        return self._gate.serve("InitProducerId", context, lambda fault: self._init_producer_id())

    def DescribeProducers(  # noqa: N802
        self, request: log_service_pb2.DescribeProducersRequest, context: grpc.ServicerContext
    ) -> log_service_pb2.DescribeProducersResponse:
        """Describe who writes to each partition."""
        return self._gate.serve("DescribeProducers", context, lambda f: describe_producers(self._table, request, f))

    def AlterReplicaLogDirs(  # noqa: N802
        self, request: log_service_pb2.AlterReplicaLogDirsRequest, context: grpc.ServicerContext
    ) -> log_service_pb2.AlterReplicaLogDirsResponse:
        """Refuse every directory but the one in which all is."""
        return self._gate.serve(
            "AlterReplicaLogDirs", context, lambda fault: alter_replica_log_dirs(self._table, request)
        )

    def _produce(self, request: log_service_pb2.ProduceRequest, fault: Fault) -> log_service_pb2.ProduceResponse:
        if request.acks not in log_service_pb2.Acks.values():
            raise error_for(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}; must be none, leader or all")
        response = log_service_pb2.ProduceResponse()
        with self._table.changed:
            for topic in request.topics:
                results = [self._append(topic.name, item, fault) for item in topic.partitions]
                response.topics.add(name=topic.name, partitions=results)
            self._table.changed.notify_all()
        return response

    def _append(
        self, name: str, item: log_service_pb2.ProducePartition, fault: Fault
    ) -> log_service_pb2.ProducePartitionResult:
        try:
            fault.before_effect()
            appended = self._table.append(name, item.index, item.records)
            fault.after_effect()
        except TidelogError as error:
            return log_service_pb2.ProducePartitionResult(
                index=item.index,
                error=error_message(error),
                base_offset=UNKNOWN_OFFSET,
                log_append_time_ms=-1,
                log_start_offset=UNKNOWN_OFFSET,
            )
        return log_service_pb2.ProducePartitionResult(
            index=item.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=self._table.partition(name, item.index).log_start_offset,
        )

    def _delete_records(
        self, request: log_service_pb2.DeleteRecordsRequest, fault: Fault
    ) -> log_service_pb2.DeleteRecordsResponse:
        response = log_service_pb2.DeleteRecordsResponse()
        with self._table.changed:
            for topic in request.topics:
                results = [self._delete_from(topic.name, item, fault) for item in topic.partitions]
                response.topics.add(name=topic.name, partitions=results)
            self._table.changed.notify_all()
        return response

    def _delete_from(
        self, name: str, item: log_service_pb2.DeleteRecordsPartition, fault: Fault
    ) -> log_service_pb2.DeleteRecordsPartitionResult:
        result = log_service_pb2.DeleteRecordsPartitionResult(index=item.index, low_watermark=UNKNOWN_OFFSET)
        try:
            fault.before_effect()
            low_watermark = self._table.delete_records(name, item.index, item.offset)
            fault.after_effect()
            result.low_watermark = low_watermark
        except TidelogError as error:
            result.error.CopyFrom(error_message(error))
        return result

    def _fetch(
        self, request: log_service_pb2.FetchRequest, context: grpc.ServicerContext, fault: Fault
    ) -> log_service_pb2.FetchResponse:
        self._check_fetch(request)
        if request.session.ends_wait:
            # A wait of the fake is not worth to be ended: no client of it asks for more in the same session.
            return log_service_pb2.FetchResponse(session_id=request.session.id)
        deadline = time.monotonic() + request.max_wait_ms / 1000
        context.add_callback(self._wake)
        with self._table.changed:
            try:
                session = self._sessions.begin(request)
            except TidelogError as error:
                return log_service_pb2.FetchResponse(error=error_message(error))
            while True:
                reading = self._read_all(session.topics(), request.max_bytes, fault)
                wait_s = deadline - time.monotonic()
                enough = reading.size >= request.min_bytes or reading.failed or not session.asked
                if enough or wait_s <= 0 or self._stopping or not context.is_active():
                    return self._sessions.finish(request, session, reading.response)
                self._table.changed.wait(wait_s)

    def _check_fetch(self, request: log_service_pb2.FetchRequest) -> None:
        if request.cluster_id and request.cluster_id != self._info.cluster_id:
            raise error_for(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"the request is for cluster {request.cluster_id}, this is {self._info.cluster_id}",
            )
        if request.HasField("replica"):
            raise error_for(ErrorCode.INVALID_REQUEST, f"replica {request.replica.replica_id}: the fake has none")

    def _wake(self) -> None:
        with self._table.changed:
            self._table.changed.notify_all()

    def _read_all(self, topics: Iterable[log_service_pb2.FetchTopic], max_bytes: int, fault: Fault) -> _Reading:
        reading = _Reading()
        for topic in topics:
            result = reading.response.topics.add(name=topic.name)
            for item in topic.partitions:
                result.partitions.append(self._read_one(topic, item, max_bytes, reading, fault))
        return reading

    def _read_one(
        self,
        topic: log_service_pb2.FetchTopic,
        item: log_service_pb2.FetchPartition,
        max_bytes: int,
        reading: _Reading,
        fault: Fault,
    ) -> log_service_pb2.FetchPartitionResult:
        result = log_service_pb2.FetchPartitionResult(
            index=item.index,
            high_watermark=UNKNOWN_OFFSET,
            last_stable_offset=UNKNOWN_OFFSET,
            log_start_offset=UNKNOWN_OFFSET,
        )
        try:
            fault.before_effect()
            fault.after_effect()
            partition = self._table.partition(topic.name, item.index)
            self._check_topic_id(topic)
            if item.HasField("current_leader_epoch"):
                _check_leader_epoch(partition, topic.name, item.index, item.current_leader_epoch)
            limit = min(item.partition_max_bytes, max_bytes - reading.size)
            result.records = partition.read(item.fetch_offset, limit, at_least_one=reading.size == 0)
            reading.size += len(result.records)
            result.high_watermark = result.last_stable_offset = partition.log_end_offset
            result.log_start_offset = partition.log_start_offset
        except TidelogError as error:
            reading.failed = True
            result.error.CopyFrom(error_message(error))
            self._name_leader(topic.name, item.index, error, result)
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                partition = self._table.partition(topic.name, item.index)
                result.high_watermark = partition.log_end_offset
                result.log_start_offset = partition.log_start_offset
        return result

    def _check_topic_id(self, topic: log_service_pb2.FetchTopic) -> None:
        if topic.topic_id and topic.topic_id != self._table.topic(topic.name).topic_id:
            raise error_for(ErrorCode.INCONSISTENT_TOPIC_ID, f'topic "{topic.name}" has another id than the request')

    def _name_leader(
        self, name: str, index: int, error: TidelogError, result: log_service_pb2.FetchPartitionResult
    ) -> None:
        if error.code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            result.current_leader.leader_id = NODE_ID
            result.current_leader.leader_epoch = self._table.partition(name, index).leader_epoch

    def _list_offsets(
        self, request: log_service_pb2.ListOffsetsRequest, fault: Fault
    ) -> log_service_pb2.ListOffsetsResponse:
        response = log_service_pb2.ListOffsetsResponse()
        with self._table.changed:
            for topic in request.topics:
                results = [self._list_one(topic.name, item, fault) for item in topic.partitions]
                response.topics.add(name=topic.name, partitions=results)
        return response

    def _list_one(
        self, name: str, item: log_service_pb2.ListOffsetsPartition, fault: Fault
    ) -> log_service_pb2.ListOffsetsPartitionResult:
        try:
            fault.before_effect()
            fault.after_effect()
            partition = self._table.partition(name, item.index)
            if item.HasField("current_leader_epoch"):
                _check_leader_epoch(partition, name, item.index, item.current_leader_epoch)
            found = _find_offset(partition, item.timestamp_ms)
        except TidelogError as error:
            return log_service_pb2.ListOffsetsPartitionResult(
                index=item.index, error=error_message(error), timestamp_ms=-1, offset=UNKNOWN_OFFSET, leader_epoch=-1
            )
        epoch = -1 if found.offset == UNKNOWN_OFFSET else partition.epoch_at(found.offset)
        return log_service_pb2.ListOffsetsPartitionResult(
            index=item.index, timestamp_ms=found.timestamp_ms, offset=found.offset, leader_epoch=epoch
        )

    def _init_producer_id(self) -> log_service_pb2.InitProducerIdResponse:
        return log_service_pb2.InitProducerIdResponse(producer_id=next(self._producer_ids), producer_epoch=0)

    def _get_metadata(
        self, request: log_service_pb2.GetMetadataRequest, fault: Fault
    ) -> log_service_pb2.GetMetadataResponse:
        node = log_service_pb2.BrokerMetadata(node_id=NODE_ID, host=self._info.host, port=self._info.port)
        with self._table.changed:
            names = self._table.names() if request.all_topics else request.topics
            auto_create = request.allow_auto_topic_creation and self._info.auto_create_topics
            topics = [self._describe(name, auto_create, fault) for name in names]
        return log_service_pb2.GetMetadataResponse(
            cluster_id=self._info.cluster_id, controller_id=NODE_ID, brokers=[node], topics=topics
        )

    def _describe(self, name: str, auto_create: bool, fault: Fault) -> log_service_pb2.TopicMetadata:
        try:
            fault.before_effect()
            fault.after_effect()
            if auto_create and name not in self._table.names():
                self._table.create(name)
            return topic_metadata(self._table.topic(name))
        except TidelogError as error:
            return log_service_pb2.TopicMetadata(name=name, error=error_message(error))

    def _end_of_epochs(
        self, request: log_service_pb2.OffsetForLeaderEpochRequest, fault: Fault
    ) -> log_service_pb2.OffsetForLeaderEpochResponse:
        response = log_service_pb2.OffsetForLeaderEpochResponse()
        with self._table.changed:
            for topic in request.topics:
                results = [self._end_of_epoch(topic.name, item, fault) for item in topic.partitions]
                response.topics.add(name=topic.name, partitions=results)
        return response

    def _end_of_epoch(
        self, name: str, item: log_service_pb2.OffsetForLeaderPartition, fault: Fault
    ) -> log_service_pb2.OffsetForLeaderPartitionResult:
        try:
            fault.before_effect()
            fault.after_effect()
            partition = self._table.partition(name, item.index)
            if item.HasField("current_leader_epoch"):
                _check_leader_epoch(partition, name, item.index, item.current_leader_epoch)
        except TidelogError as error:
            return log_service_pb2.OffsetForLeaderPartitionResult(
                index=item.index, error=error_message(error), leader_epoch=-1, end_offset=UNKNOWN_OFFSET
            )
        epoch, end_offset = partition.end_offset_for_epoch(item.leader_epoch)
        return log_service_pb2.OffsetForLeaderPartitionResult(
            index=item.index, leader_epoch=epoch, end_offset=end_offset
        )


def _check_leader_epoch(partition: FakePartition, name: str, index: int, epoch: int) -> None:
    if epoch < partition.leader_epoch:
        raise error_for(
            ErrorCode.FENCED_LEADER_EPOCH, f"{name}-{index}: epoch {epoch} is older than {partition.leader_epoch}"
        )
    if epoch > partition.leader_epoch:
        raise error_for(
            ErrorCode.UNKNOWN_LEADER_EPOCH, f"{name}-{index}: epoch {epoch} is newer than {partition.leader_epoch}"
        )


def _find_offset(partition: FakePartition, timestamp_ms: int) -> FoundOffset:
    if timestamp_ms == LATEST:
        return FoundOffset(partition.log_end_offset, -1)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return FoundOffset(partition.log_start_offset, -1)
    if timestamp_ms == MAX_TIMESTAMP:
        return partition.find_max_timestamp()
    if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOT_FOUND
    if timestamp_ms < 0:
        raise error_for(ErrorCode.INVALID_REQUEST, f"timestamp {timestamp_ms}; must be -6 to -1 or at least 0")
    return partition.find_by_timestamp(timestamp_ms)
