"""The records of the metadata log as frozen values, named and shaped as in Kafka's KRaft.

They describe changes; :class:`~tidelog_quorum.metadata.image.MetadataImage` is their result. A list of broker ids is a
tuple; the first of ``replicas`` is the preferred leader. ``None`` means "unchanged" in change records.
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import (
    NO_BROKER,
    AclId,
    BrokerEpoch,
    BrokerId,
    DirectoryId,
    LeaderEpoch,
    LinkId,
    PartitionEpoch,
    TopicId,
)
from tidelog_foundation.requests.acls import AclBinding
from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_foundation.requests.delegation_tokens import DelegationToken
from tidelog_foundation.requests.features import FeatureRange
from tidelog_foundation.requests.links import ClusterLink, MirrorState
from tidelog_foundation.requests.quotas import QuotaEntity
from tidelog_foundation.sasl.scram_credentials import CredentialKey, ScramCredential, ScramMechanism

_FIRST_LEADER_EPOCH = LeaderEpoch(0)
_FIRST_PARTITION_EPOCH = PartitionEpoch(0)


@dataclass(frozen=True, slots=True)
class RegisterBrokerRecord:
    """The registration of a broker's process (KIP-631). ``broker_epoch`` is the offset of this record.

    ``log_dirs`` are its usable log directories; () if the broker did not report them. The same holds for ``features``
    and ``listeners``, one of which is ``endpoint``, the gRPC listener.
    """

    broker_id: BrokerId
    incarnation_id: bytes
    broker_epoch: BrokerEpoch
    endpoint: Endpoint
    rack: str = ""
    log_dirs: tuple[DirectoryId, ...] = ()
    fenced: bool = True
    in_controlled_shutdown: bool = False
    features: tuple[FeatureRange, ...] = ()
    listeners: tuple[ListenerEndpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRecord:
    """The final removal of a broker."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class BrokerRegistrationChangeRecord:
    """A change of a broker: fenced, unfenced, controlled shutdown (KIP-841) or a lost log directory (KIP-858).

    ``log_dirs`` are the remaining directories.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    log_dirs: tuple[DirectoryId, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """The creation of a topic; its partitions follow in the same entry."""

    name: str
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A complete partition. ``directories`` correspond to ``replicas``, one by one; () means that none is assigned.

    ``adding_replicas`` and ``removing_replicas`` are the parts of ``replicas`` that a reassignment in progress adds and
    removes (KIP-455). ``is_mirror`` marks a partition that only a cluster link may write, and
    ``mirror_end_epoch`` is the leader epoch in which this ended; 0 if it is or was no mirror.
    """

    topic_id: TopicId
    partition_id: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId = NO_BROKER
    leader_epoch: LeaderEpoch = _FIRST_LEADER_EPOCH
    partition_epoch: PartitionEpoch = _FIRST_PARTITION_EPOCH
    eligible_leader_replicas: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    directories: tuple[DirectoryId, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    is_mirror: bool = False
    mirror_end_epoch: LeaderEpoch = _FIRST_LEADER_EPOCH


@dataclass(frozen=True, slots=True)
class PartitionChangeRecord:
    """A change of a partition.

    Each record increments the partition epoch by one; one with a leader, even the same one, increments the leader epoch
    too, at least to ``leader_epoch``; the partition epoch does not stay below the leader epoch. If the replicas change
    and ``directories`` is None, the remaining replicas keep theirs.
    """

    topic_id: TopicId
    partition_id: int
    leader: BrokerId | None = None
    isr: tuple[BrokerId, ...] | None = None
    replicas: tuple[BrokerId, ...] | None = None
    eligible_leader_replicas: tuple[BrokerId, ...] | None = None
    last_known_elr: tuple[BrokerId, ...] | None = None
    directories: tuple[DirectoryId, ...] | None = None
    adding_replicas: tuple[BrokerId, ...] | None = None
    removing_replicas: tuple[BrokerId, ...] | None = None
    is_mirror: bool | None = None
    leader_epoch: LeaderEpoch | None = None


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """The deletion of a topic, with its partitions and its configuration."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """One setting of a topic (by name) or of a broker (by id; "" for all). ``value`` None removes it."""

    resource_type: ConfigResourceType
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    """The level of a feature that the whole cluster uses; 0 removes it."""

    name: str
    level: int


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """The allocation of a block of producer ids to a broker; ``next_producer_id`` is the first free one."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class NoOpRecord:
    """A record without effect, which a new leader writes to learn which entries are committed."""


@dataclass(frozen=True, slots=True)
class AccessControlEntryRecord:
    """The creation of an ACL (KIP-801)."""

    id: AclId
    acl: AclBinding


@dataclass(frozen=True, slots=True)
class RemoveAccessControlEntryRecord:
    """The deletion of an ACL."""

    id: AclId


@dataclass(frozen=True, slots=True)
class UserScramCredentialRecord:
    """A user's credential for SCRAM, which replaces the one for the same mechanism (KIP-900)."""

    name: str
    mechanism: ScramMechanism
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of(cls, key: CredentialKey, credential: ScramCredential) -> UserScramCredentialRecord:
        """Return the record of a credential."""
        keys = (credential.stored_key, credential.server_key)
        return cls(key.user, key.mechanism, credential.salt, *keys, credential.iterations)

    @property
    def key(self) -> CredentialKey:
        """The user and the mechanism."""
        return CredentialKey(self.name, self.mechanism)

    @property
    def credential(self) -> ScramCredential:
        """The credential."""
        return ScramCredential(self.salt, self.stored_key, self.server_key, self.iterations)


@dataclass(frozen=True, slots=True)
class RemoveUserScramCredentialRecord:
    """The deletion of a user's credential for SCRAM."""

    name: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True)
class ClientQuotaRecord:
    """A limit of an entity, set or removed (KIP-546)."""

    entity: QuotaEntity
    key: str
    value: float = 0.0
    remove: bool = False


@dataclass(frozen=True, slots=True)
class DelegationTokenRecord:
    """A delegation token (KIP-900): a new one, or a known one with another expiry."""

    token: DelegationToken


@dataclass(frozen=True, slots=True)
class RemoveDelegationTokenRecord:
    """The removal of a delegation token."""

    token_id: str


@dataclass(frozen=True, slots=True)
class ClusterLinkRecord:
    """A cluster link: a new one, or a known one with other settings."""

    link: ClusterLink


@dataclass(frozen=True, slots=True)
class RemoveClusterLinkRecord:
    """The deletion of a cluster link, which has no mirror topic."""

    link_id: LinkId


@dataclass(frozen=True, slots=True)
class MirrorTopicRecord:
    """The state of a mirror topic. It ends with the topic."""

    topic_id: TopicId
    link_id: LinkId
    state: MirrorState


MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | ConfigRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | NoOpRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | ClientQuotaRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | ClusterLinkRecord
    | RemoveClusterLinkRecord
    | MirrorTopicRecord
)
