"""Encodes and decodes metadata records as messages of ``tidelog.v1`` and as the payload of a Raft entry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import assert_never, cast

from google.protobuf.message import DecodeError

from tidelog.v1 import common_pb2
from tidelog.v1 import metadata_record_pb2 as pb
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId, DirectoryId, LeaderEpoch, PartitionEpoch, TopicId
from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_foundation.requests.features import FeatureRange
from tidelog_quorum.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)


def encode_batch(records: Iterable[MetadataRecord]) -> bytes:
    """Return the payload of one Raft entry."""
    return pb.MetadataRecordBatch(records=[to_message(r) for r in records]).SerializeToString()


def decode_batch(payload: bytes) -> list[MetadataRecord]:
    """Return the records of a Raft entry's payload; an empty payload has none.

    Raises:
        TidelogError: CORRUPT_MESSAGE, the payload is not a batch; UNSUPPORTED_VERSION, it has a record of an unknown
            kind. Skipping that record would make replicas differ.
    """
    try:
        batch = pb.MetadataRecordBatch.FromString(payload)
    except DecodeError as error:
        raise error_for(
            ErrorCode.CORRUPT_MESSAGE, f"{len(payload)} bytes are not a batch of metadata records"
        ) from error
    return [from_message(m) for m in batch.records]


def to_message(record: MetadataRecord) -> pb.MetadataRecord:
    """Return the message of a record."""
    match record:
        case RegisterBrokerRecord():
            return pb.MetadataRecord(register_broker=_register_broker(record))
        case UnregisterBrokerRecord():
            unregister = pb.UnregisterBrokerRecord(broker_id=record.broker_id, broker_epoch=record.broker_epoch)
            return pb.MetadataRecord(unregister_broker=unregister)
        case BrokerRegistrationChangeRecord():
            return pb.MetadataRecord(broker_registration_change=_registration_change(record))
        case TopicRecord():
            return pb.MetadataRecord(topic=pb.TopicRecord(name=record.name, topic_id=record.topic_id))
        case PartitionRecord():
            return pb.MetadataRecord(partition=_partition(record))
        case PartitionChangeRecord():
            return pb.MetadataRecord(partition_change=_partition_change(record))
        case RemoveTopicRecord():
            return pb.MetadataRecord(remove_topic=pb.RemoveTopicRecord(topic_id=record.topic_id))
        case ConfigRecord():
            return pb.MetadataRecord(config=_config(record))
        case FeatureLevelRecord():
            return pb.MetadataRecord(feature_level=pb.FeatureLevelRecord(name=record.name, level=record.level))
        case ProducerIdsRecord():
            return pb.MetadataRecord(producer_ids=_producer_ids(record))
        case NoOpRecord():
            return pb.MetadataRecord(no_op=pb.NoOpRecord())
        case _:
            assert_never(record)


def from_message(message: pb.MetadataRecord) -> MetadataRecord:
    """Return the record of a message.

    Raises:
        TidelogError: UNSUPPORTED_VERSION, the message has a record of an unknown kind.
    """
    kind = message.WhichOneof("record")
    if kind is None:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, "the metadata log holds a record of an unknown kind")
    return _READERS[kind](message)


def _register_broker(record: RegisterBrokerRecord) -> pb.RegisterBrokerRecord:
    return pb.RegisterBrokerRecord(
        broker_id=record.broker_id,
        incarnation_id=record.incarnation_id,
        broker_epoch=record.broker_epoch,
        endpoint=common_pb2.Endpoint(host=record.endpoint.host, port=record.endpoint.port),
        rack=record.rack,
        log_dirs=record.log_dirs,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        features=[
            common_pb2.FeatureRange(name=f.name, min_level=f.min_level, max_level=f.max_level) for f in record.features
        ],
        listeners=map(_listener_message, record.listeners),
    )


def _from_register_broker(message: pb.RegisterBrokerRecord) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=BrokerId(message.broker_id),
        incarnation_id=message.incarnation_id,
        broker_epoch=BrokerEpoch(message.broker_epoch),
        endpoint=Endpoint(message.endpoint.host, message.endpoint.port),
        rack=message.rack,
        log_dirs=_directories(message.log_dirs),
        fenced=message.fenced,
        in_controlled_shutdown=message.in_controlled_shutdown,
        features=tuple(FeatureRange(f.name, f.min_level, f.max_level) for f in message.features),
        listeners=_listener_endpoints(message.listeners),
    )


def _listener_message(listener: ListenerEndpoint) -> common_pb2.ListenerEndpoint:
    """Return the message of one of a broker's listeners."""
    return common_pb2.ListenerEndpoint(
        name=listener.name, host=listener.host, port=listener.port, security_protocol=listener.security_protocol
    )


def _listener_endpoints(messages: Iterable[common_pb2.ListenerEndpoint]) -> tuple[ListenerEndpoint, ...]:
    """Return the listeners of a broker, from its record or its registration request."""
    return tuple(ListenerEndpoint(m.name, m.host, m.port, m.security_protocol) for m in messages)


def _registration_change(record: BrokerRegistrationChangeRecord) -> pb.BrokerRegistrationChangeRecord:
    return pb.BrokerRegistrationChangeRecord(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=_optional_directories_message(record.log_dirs),
    )


def _from_registration_change(message: pb.BrokerRegistrationChangeRecord) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=BrokerId(message.broker_id),
        broker_epoch=BrokerEpoch(message.broker_epoch),
        fenced=message.fenced if message.HasField("fenced") else None,
        in_controlled_shutdown=message.in_controlled_shutdown if message.HasField("in_controlled_shutdown") else None,
        log_dirs=_directories(message.log_dirs.ids) if message.HasField("log_dirs") else None,
    )


def _partition(record: PartitionRecord) -> pb.PartitionRecord:
    return pb.PartitionRecord(
        topic_id=record.topic_id,
        partition_id=record.partition_id,
        replicas=record.replicas,
        isr=record.isr,
        eligible_leader_replicas=record.eligible_leader_replicas,
        last_known_elr=record.last_known_elr,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        directories=record.directories,
        adding_replicas=record.adding_replicas,
        removing_replicas=record.removing_replicas,
    )


def _from_partition(message: pb.PartitionRecord) -> PartitionRecord:
    return PartitionRecord(
        TopicId(message.topic_id),
        message.partition_id,
        _ids(message.replicas),
        _ids(message.isr),
        BrokerId(message.leader),
        LeaderEpoch(message.leader_epoch),
        PartitionEpoch(message.partition_epoch),
        _ids(message.eligible_leader_replicas),
        _ids(message.last_known_elr),
        _directories(message.directories),
        _ids(message.adding_replicas),
        _ids(message.removing_replicas),
    )


def _partition_change(record: PartitionChangeRecord) -> pb.PartitionChangeRecord:
    return pb.PartitionChangeRecord(
        topic_id=record.topic_id,
        partition_id=record.partition_id,
        leader=record.leader,
        isr=_optional_ids_message(record.isr),
        replicas=_optional_ids_message(record.replicas),
        eligible_leader_replicas=_optional_ids_message(record.eligible_leader_replicas),
        last_known_elr=_optional_ids_message(record.last_known_elr),
        directories=_optional_directories_message(record.directories),
        adding_replicas=_optional_ids_message(record.adding_replicas),
        removing_replicas=_optional_ids_message(record.removing_replicas),
    )


def _from_partition_change(message: pb.PartitionChangeRecord) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        topic_id=TopicId(message.topic_id),
        partition_id=message.partition_id,
        leader=BrokerId(message.leader) if message.HasField("leader") else None,
        isr=_ids(message.isr.ids) if message.HasField("isr") else None,
        replicas=_ids(message.replicas.ids) if message.HasField("replicas") else None,
        eligible_leader_replicas=(
            _ids(message.eligible_leader_replicas.ids) if message.HasField("eligible_leader_replicas") else None
        ),
        last_known_elr=_ids(message.last_known_elr.ids) if message.HasField("last_known_elr") else None,
        directories=_directories(message.directories.ids) if message.HasField("directories") else None,
        adding_replicas=_ids(message.adding_replicas.ids) if message.HasField("adding_replicas") else None,
        removing_replicas=_ids(message.removing_replicas.ids) if message.HasField("removing_replicas") else None,
    )


def _config(record: ConfigRecord) -> pb.ConfigRecord:
    return pb.ConfigRecord(
        resource_type=pb.ConfigResourceType.ValueType(record.resource_type),
        resource_name=record.resource_name,
        name=record.name,
        value=record.value,
    )


def _from_config(message: pb.ConfigRecord) -> ConfigRecord:
    try:
        resource_type = ConfigResourceType(message.resource_type)
    except ValueError as error:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"unknown resource type {message.resource_type}") from error
    value = message.value if message.HasField("value") else None
    return ConfigRecord(resource_type, message.resource_name, message.name, value)


def _producer_ids(record: ProducerIdsRecord) -> pb.ProducerIdsRecord:
    return pb.ProducerIdsRecord(
        broker_id=record.broker_id, broker_epoch=record.broker_epoch, next_producer_id=record.next_producer_id
    )


def _from_unregister_broker(message: pb.UnregisterBrokerRecord) -> UnregisterBrokerRecord:
    return UnregisterBrokerRecord(BrokerId(message.broker_id), BrokerEpoch(message.broker_epoch))


def _from_producer_ids(message: pb.ProducerIdsRecord) -> ProducerIdsRecord:
    return ProducerIdsRecord(BrokerId(message.broker_id), BrokerEpoch(message.broker_epoch), message.next_producer_id)


def _ids(ids: Collection[int]) -> tuple[BrokerId, ...]:
    # Called six times per partition, mostly with an empty list.
    return cast("tuple[BrokerId, ...]", tuple(ids)) if ids else ()


def _directories(ids: Collection[bytes]) -> tuple[DirectoryId, ...]:
    return cast("tuple[DirectoryId, ...]", tuple(ids)) if ids else ()


def _optional_directories_message(ids: tuple[DirectoryId, ...] | None) -> pb.DirectoryIds | None:
    return None if ids is None else pb.DirectoryIds(ids=ids)


def _optional_ids_message(ids: tuple[BrokerId, ...] | None) -> pb.BrokerIds | None:
    return None if ids is None else pb.BrokerIds(ids=ids)


_READERS: dict[str, Callable[[pb.MetadataRecord], MetadataRecord]] = {
    "partition": lambda m: _from_partition(m.partition),
    "partition_change": lambda m: _from_partition_change(m.partition_change),
    "register_broker": lambda m: _from_register_broker(m.register_broker),
    "unregister_broker": lambda m: _from_unregister_broker(m.unregister_broker),
    "broker_registration_change": lambda m: _from_registration_change(m.broker_registration_change),
    "topic": lambda m: TopicRecord(m.topic.name, TopicId(m.topic.topic_id)),
    "remove_topic": lambda m: RemoveTopicRecord(TopicId(m.remove_topic.topic_id)),
    "config": lambda m: _from_config(m.config),
    "feature_level": lambda m: FeatureLevelRecord(m.feature_level.name, m.feature_level.level),
    "producer_ids": lambda m: _from_producer_ids(m.producer_ids),
    "no_op": lambda _: NoOpRecord(),
}
