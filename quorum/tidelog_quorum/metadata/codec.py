"""Encodes and decodes metadata records as messages of ``tidelog.v1`` and as the payload of a Raft entry."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, cast

from google.protobuf.message import DecodeError

from tidelog.v1 import metadata_record_pb2 as pb
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerId, DirectoryId, LeaderEpoch, PartitionEpoch, TopicId
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_foundation.requests.links import MirrorState
from tidelog_foundation.sasl.scram_credentials import ScramMechanism
from tidelog_foundation.transport.message_codec import MessageCodec
from tidelog_quorum.metadata.records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ClusterLinkRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    MetadataRecord,
    MirrorTopicRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveClusterLinkRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
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
    kind, codec = _BY_TYPE[type(record)]
    return pb.MetadataRecord(**{kind: codec.to_message(record)})


def from_message(message: pb.MetadataRecord) -> MetadataRecord:
    """Return the record of a message.

    Raises:
        TidelogError: UNSUPPORTED_VERSION, the message has a record of an unknown kind, a setting of an unknown type of
            resource, or a credential for an unknown mechanism.
    """
    kind = message.WhichOneof("record")
    if kind == "partition":
        return _partition(message.partition)
    if kind is None:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, "the metadata log has a record of an unknown kind")
    record: MetadataRecord = _BY_KIND[kind].from_message(getattr(message, kind))
    if type(record) is ConfigRecord and record.resource_type not in _RESOURCE_TYPES:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"unknown resource type {record.resource_type}")
    if isinstance(record, UserScramCredentialRecord) and ScramMechanism(record.mechanism) is ScramMechanism.UNKNOWN:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"unknown SCRAM mechanism {record.mechanism}")
    if isinstance(record, MirrorTopicRecord) and record.state not in _MIRROR_STATES:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"unknown state {record.state} of a mirror topic")
    return record


def _partition(message: pb.PartitionRecord) -> PartitionRecord:
    """Return the record of a partition, faster than the codec: most records of a large image are of this kind."""
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
        cast("tuple[DirectoryId, ...]", tuple(message.directories)),
        _ids(message.adding_replicas),
        _ids(message.removing_replicas),
        message.is_mirror,
        LeaderEpoch(message.mirror_end_epoch),
    )


def _ids(ids: Collection[int]) -> tuple[BrokerId, ...]:
    # Called six times per partition, mostly with an empty list.
    return cast("tuple[BrokerId, ...]", tuple(ids)) if ids else ()


_BY_KIND: dict[str, MessageCodec[Any, Any]] = {
    "register_broker": MessageCodec(RegisterBrokerRecord, pb.RegisterBrokerRecord),
    "unregister_broker": MessageCodec(UnregisterBrokerRecord, pb.UnregisterBrokerRecord),
    "broker_registration_change": MessageCodec(BrokerRegistrationChangeRecord, pb.BrokerRegistrationChangeRecord),
    "topic": MessageCodec(TopicRecord, pb.TopicRecord),
    "partition": MessageCodec(PartitionRecord, pb.PartitionRecord),
    "partition_change": MessageCodec(PartitionChangeRecord, pb.PartitionChangeRecord),
    "remove_topic": MessageCodec(RemoveTopicRecord, pb.RemoveTopicRecord),
    "config": MessageCodec(ConfigRecord, pb.ConfigRecord),
    "feature_level": MessageCodec(FeatureLevelRecord, pb.FeatureLevelRecord),
    "producer_ids": MessageCodec(ProducerIdsRecord, pb.ProducerIdsRecord),
    "no_op": MessageCodec(NoOpRecord, pb.NoOpRecord),
    "access_control_entry": MessageCodec(AccessControlEntryRecord, pb.AccessControlEntryRecord),
    "remove_access_control_entry": MessageCodec(RemoveAccessControlEntryRecord, pb.RemoveAccessControlEntryRecord),
    "user_scram_credential": MessageCodec(UserScramCredentialRecord, pb.UserScramCredentialRecord),
    "remove_user_scram_credential": MessageCodec(RemoveUserScramCredentialRecord, pb.RemoveUserScramCredentialRecord),
    "client_quota": MessageCodec(ClientQuotaRecord, pb.ClientQuotaRecord),
    "delegation_token": MessageCodec(DelegationTokenRecord, pb.DelegationTokenRecord),
    "remove_delegation_token": MessageCodec(RemoveDelegationTokenRecord, pb.RemoveDelegationTokenRecord),
    "cluster_link": MessageCodec(ClusterLinkRecord, pb.ClusterLinkRecord),
    "remove_cluster_link": MessageCodec(RemoveClusterLinkRecord, pb.RemoveClusterLinkRecord),
    "mirror_topic": MessageCodec(MirrorTopicRecord, pb.MirrorTopicRecord),
}
_BY_TYPE = {codec.value_type: (kind, codec) for kind, codec in _BY_KIND.items()}
_RESOURCE_TYPES = frozenset(ConfigResourceType)
_MIRROR_STATES = frozenset(MirrorState) - {MirrorState.UNSPECIFIED}
