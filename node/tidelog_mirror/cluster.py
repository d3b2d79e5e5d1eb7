"""A client of one of the mirror's clusters: the requests to administer topics and groups, and to produce.

Requests that fail in a way that passes are repeated by the callers' loops, not here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerId, LeaderEpoch, TopicId
from tidelog_foundation.link_settings import LinkConfig
from tidelog_mirror.batches import Producer
from tidelog_mirror.checkpoints import Committed
from tidelog_mirror.topic_plan import LITERAL, TOPIC, Setting, TopicAcl
from tidelog_node.kafka.client.source_cluster import SourceCluster
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages import (
    acls,
    configs,
    group_admin,
    group_offsets,
    metadata,
    offsets,
    produce_client,
    producers,
    topics,
    transactions,
)
from tidelog_node.kafka.protocol.reader import MalformedMessageError
from tidelog_node.kafka.protocol.writer import Buffer, Writer

PartitionKey = tuple[str, int]
_ANY: Final = 1
"""The number that matches any operation, permission or pattern in a filter of ACLs."""
_SET, _REMOVE = 0, 1
_OF_TOPIC: Final = 1
_GROUP, _TRANSACTION = 0, 1
_LATEST: Final = -1
_READ_COMMITTED: Final = 1
_METADATA: Final = (10, 13)
"""Versions with ids of topics."""
_COORDINATOR: Final = (4, 6)
"""Versions with lists of keys."""
_LIST_GROUPS: Final = (4, 5)
"""Versions with states."""
_OFFSET_FETCH: Final = (8, 9)
_OFFSET_COMMIT: Final = (2, 9)
"""Versions of commits and fetches of offsets that name topics, not their ids."""
_ADD_PARTITIONS: Final = (0, 3)
"""Versions for clients."""
_END_TRANSACTION: Final = (0, 4)
"""Versions after which the producer keeps its epoch."""
_REQUEST_S: Final = 30.0
_ADMIN_MS: Final = 8_000


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its id, and the leader and its epoch of each partition. A leader of -1 means none."""

    id: TopicId
    leaders: Mapping[int, tuple[BrokerId, LeaderEpoch]]
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class Topics:
    """The brokers and topics of a cluster at a point in time."""

    brokers: Mapping[BrokerId, str]
    topics: Mapping[str, Topic]

    def leader(self, topic: str, partition: int) -> tuple[str, LeaderEpoch] | None:
        """Return the address of a partition's leader, and its epoch; None if there is none."""
        found = self.topics.get(topic)
        broker, epoch = (BrokerId(-1), LeaderEpoch(-1)) if found is None else found.leaders.get(partition, _NOBODY)
        address = self.brokers.get(broker)
        return None if address is None else (address, epoch)

    @property
    def counts(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        return {name: len(topic.leaders) for name, topic in self.topics.items()}


_NOBODY: Final = BrokerId(-1), LeaderEpoch(-1)


@dataclass(frozen=True, slots=True)
class Group:
    """A group's kind and state, as its cluster lists it."""

    protocol_type: str
    state: str

    @property
    def has_members(self) -> bool:
        """True unless the group is empty or dead."""
        return self.state not in ("Empty", "Dead")


class MirrorCluster(SourceCluster):
    """A cluster, as source or as target. Its methods raise TidelogError."""

    def __init__(self, config: LinkConfig, client_id: str) -> None:
        """Load the certificates, as :class:`SourceCluster` does."""
        super().__init__(config, client_id)
        self._epochs: dict[tuple[TopicId, int], LeaderEpoch] = {}
        """The highest leader epoch of each partition that a broker has reported."""
        self._turn = 0

    async def describe(self, names: Sequence[str] | None = None) -> Topics:
        """Return the given topics, or all.

        A broker that its cluster has lost reports leaders of the past, itself among them. Each call therefore begins
        with another broker, and a partition whose leader epoch is older than one before has no leader in the answer
        (KIP-320).
        """
        wanted = None if names is None else [metadata.MetadataRequestTopic(name=name) for name in names]
        request = metadata.MetadataRequest(wanted, allow_auto_topic_creation=False)
        response = await self._call_any(request, metadata.MetadataResponse, _METADATA)
        brokers = {BrokerId(b.node_id): format_address(b.host, b.port) for b in response.brokers}
        self._turn += 1
        addresses = list(brokers.values())
        first = self._turn % max(len(addresses), 1)
        self._known = [*addresses[first:], *addresses[:first]]
        found = {
            topic.name: Topic(TopicId(topic.topic_id), self._leaders(topic), topic.is_internal)
            for topic in response.topics
            if topic.name is not None and not topic.error_code
        }
        if names is None:
            ids = {topic.id for topic in found.values()}
            self._epochs = {key: epoch for key, epoch in self._epochs.items() if key[0] in ids}
        return Topics(brokers, found)

    def _leaders(self, topic: metadata.MetadataResponseTopic) -> dict[int, tuple[BrokerId, LeaderEpoch]]:
        leaders: dict[int, tuple[BrokerId, LeaderEpoch]] = {}
        for p in topic.partitions:
            key, epoch = (TopicId(topic.topic_id), p.partition_index), LeaderEpoch(p.leader_epoch)
            is_old = epoch < self._epochs.get(key, epoch)
            leaders[p.partition_index] = _NOBODY if is_old else (BrokerId(p.leader_id), epoch)
            if not is_old:
                self._epochs[key] = epoch
        return leaders

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, settings: Mapping[str, str | None]
    ) -> bool:
        """Create a topic, and return whether it was missing."""
        wanted = [topics.CreatableTopicConfig(key, value) for key, value in settings.items() if value is not None]
        topic = topics.CreatableTopic(name, partitions, replication_factor, configs=wanted)
        response = await self._call_any(topics.CreateTopicsRequest([topic], _ADMIN_MS), topics.CreateTopicsResponse)
        for result in response.topics:
            if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS.code:
                return False
            _check(result.error_code, f"creation of topic {name}", result.error_message)
        return True

    async def add_partitions(self, name: str, count: int) -> None:
        """Raise a topic's number of partitions."""
        request = topics.CreatePartitionsRequest([topics.CreatePartitionsTopic(name, count, None)], _ADMIN_MS)
        response = await self._call_any(request, topics.CreatePartitionsResponse)
        for result in response.results:
            _check(result.error_code, f"addition of partitions to topic {name}", result.error_message)

    async def settings(self, names: Iterable[str]) -> dict[str, list[Setting]]:
        """Return all settings of topics. Topics with an error are left out."""
        wanted = [configs.DescribeConfigsResource(TOPIC, name, None) for name in names]
        response = await self._call_any(configs.DescribeConfigsRequest(wanted), configs.DescribeConfigsResponse)
        return {
            result.resource_name: [
                Setting(c.name, c.value, c.config_source != _OF_TOPIC, c.read_only, c.is_sensitive)
                for c in result.configs
            ]
            for result in response.results
            if not result.error_code
        }

    async def change_settings(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set settings of a topic, and remove those that are None."""
        wanted = [
            configs.IncrementalAlterableConfig(name, _REMOVE if value is None else _SET, value)
            for name, value in changes.items()
        ]
        request = configs.IncrementalAlterConfigsRequest(
            [configs.IncrementalAlterConfigsResource(TOPIC, topic, wanted)]
        )
        response = await self._call_any(request, configs.IncrementalAlterConfigsResponse)
        for result in response.responses:
            _check(result.error_code, f"settings of topic {topic}", result.error_message)

    async def topic_acls(self) -> list[TopicAcl]:
        """Return the ACLs of single topics."""
        request = acls.DescribeAclsRequest(TOPIC, None, LITERAL, None, None, _ANY, _ANY)
        response = await self._call_any(request, acls.DescribeAclsResponse)
        _check(response.error_code, "the list of ACLs", response.error_message)
        return [
            TopicAcl(resource.resource_name, acl.principal, acl.host, acl.operation, acl.permission_type)
            for resource in response.resources
            for acl in resource.acls
        ]

    async def create_acls(self, wanted: Sequence[TopicAcl]) -> None:
        """Create ACLs, those that exist included."""
        creations = [
            acls.AclCreation(TOPIC, acl.topic, LITERAL, acl.principal, acl.host, acl.operation, acl.permission)
            for acl in wanted
        ]
        response = await self._call_any(acls.CreateAclsRequest(creations), acls.CreateAclsResponse)
        for result in response.results:
            _check(result.error_code, "creation of an ACL", result.error_message)

    async def list_groups(self) -> dict[str, Group]:
        """Return all groups of the cluster."""
        known = await self.describe([])
        found: dict[str, Group] = {}
        for address in known.brokers.values():
            request = group_admin.ListGroupsRequest()
            response = await self._call(address, request, group_admin.ListGroupsResponse, _LIST_GROUPS)
            _check(response.error_code, f"the list of groups of {address}")
            found |= {g.group_id: Group(g.protocol_type, g.group_state) for g in response.groups}
        return found

    async def group_offsets(self, group_id: str) -> dict[PartitionKey, Committed]:
        """Return all offsets that a group has committed."""
        address = await self._coordinator(group_id, _GROUP)
        request = group_offsets.OffsetFetchRequest(
            groups=[group_offsets.OffsetFetchRequestGroup(group_id, topics=None)]
        )
        response = await self._call(address, request, group_offsets.OffsetFetchResponse, _OFFSET_FETCH)
        found: dict[PartitionKey, Committed] = {}
        for group in response.groups:
            _check(group.error_code, f"the offsets of group {group_id}")
            for topic in group.topics:
                for p in topic.partitions:
                    if not p.error_code and p.committed_offset >= 0:
                        found[topic.name, p.partition_index] = Committed(p.committed_offset, p.metadata or "")
        return found

    async def commit(self, group_id: str, wanted: Mapping[PartitionKey, Committed]) -> None:
        """Commit offsets of a group without members. UNKNOWN_MEMBER_ID means that it has some."""
        address = await self._coordinator(group_id, _GROUP)
        by_topic: dict[str, list[group_offsets.OffsetCommitRequestPartition]] = {}
        for (topic, index), value in wanted.items():
            partition = group_offsets.OffsetCommitRequestPartition(index, value.offset, -1, value.metadata)
            by_topic.setdefault(topic, []).append(partition)
        listed = [group_offsets.OffsetCommitRequestTopic(name, partitions=each) for name, each in by_topic.items()]
        request = group_offsets.OffsetCommitRequest(group_id, topics=listed)
        response = await self._call(address, request, group_offsets.OffsetCommitResponse, _OFFSET_COMMIT)
        for answered in response.topics:
            for p in answered.partitions:
                _check(p.error_code, f"commit of group {group_id} for {answered.name}-{p.partition_index}")

    async def stable_end(self, address: str, key: PartitionKey, epoch: LeaderEpoch) -> int:
        """Return the offset behind the last committed record that the leader of an epoch has for certain.

        A new leader does not have it at once (KIP-207).
        """
        topic, index = key
        wanted = offsets.ListOffsetsTopic(topic, [offsets.ListOffsetsPartition(index, int(epoch), _LATEST)])
        request = offsets.ListOffsetsRequest(isolation_level=_READ_COMMITTED, topics=[wanted])
        response = await self._call(address, request, offsets.ListOffsetsResponse)
        for answered in response.topics:
            for p in answered.partitions:
                _check(p.error_code, f"the end of {topic}-{index}")
                return p.offset
        raise error_for(ErrorCode._TRANSPORT, f"{address} has not answered for {topic}-{index}")

    async def start_offsets(
        self, address: str, keys: Iterable[PartitionKey], timestamp: int
    ) -> dict[PartitionKey, int]:
        """Return the log start (-2) or end (-1) of partitions that the broker leads."""
        return await self.list_offsets(address, dict.fromkeys(keys, LeaderEpoch(-1)), timestamp)

    async def new_producer(self, transactional_id: str | None, timeout_ms: int) -> Producer:
        """Return a new producer. With a transactional id it fences the former one and ends its transaction."""
        request = producers.InitProducerIdRequest(transactional_id, timeout_ms)
        if transactional_id is None:
            response = await self._call_any(request, producers.InitProducerIdResponse)
        else:
            address = await self._coordinator(transactional_id, _TRANSACTION)
            response = await self._call(address, request, producers.InitProducerIdResponse)
        _check(response.error_code, f"a producer id for {transactional_id or 'an idempotent producer'}")
        return Producer(response.producer_id, response.producer_epoch, transactional_id)

    async def add_to_transaction(self, producer: Producer, keys: Iterable[PartitionKey]) -> None:
        """Add partitions to a transaction. CONCURRENT_TRANSACTIONS means that the last one still ends."""
        by_topic: dict[str, list[int]] = {}
        for topic, index in keys:
            by_topic.setdefault(topic, []).append(index)
        assert producer.transactional_id is not None, "the producer has transactions"
        request = transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[transactions.AddPartitionsToTxnTopic(n, each) for n, each in by_topic.items()],
        )
        address = await self._coordinator(producer.transactional_id, _TRANSACTION)
        answer = transactions.AddPartitionsToTxnResponse
        response = await self._call(address, request, answer, _ADD_PARTITIONS)
        for answered in response.results_by_topic_v3_and_below:
            for p in answered.results_by_partition:
                _check(p.partition_error_code, f"{answered.name}-{p.partition_index} in a transaction")

    async def end_transaction(self, producer: Producer, *, is_committed: bool) -> None:
        """Commit or abort the transaction of a producer."""
        assert producer.transactional_id is not None, "the producer has transactions"
        request = transactions.EndTxnRequest(
            producer.transactional_id, producer.producer_id, producer.epoch, is_committed
        )
        address = await self._coordinator(producer.transactional_id, _TRANSACTION)
        response = await self._call(address, request, transactions.EndTxnResponse, _END_TRANSACTION)
        _check(response.error_code, f"the end of a transaction of {producer.transactional_id}")

    async def produce(
        self,
        address: str,
        transactional_id: str | None,
        wanted: Mapping[str, Mapping[int, Sequence[Buffer]]],
    ) -> dict[PartitionKey, produce_client.ProduceResult]:
        """Send one batch per partition to the broker at ``host:port``, and return its answers."""
        connection = await self._connections.take(address, _REQUEST_S)
        body = Writer()
        try:
            version = connection.version_of(ApiKey.PRODUCE, produce_client.VERSIONS)
            produce_client.encode_request(body, transactional_id, round(_REQUEST_S * 1000), wanted)
        except BaseException:
            connection.close()
            raise
        reader = await connection.send(ApiKey.PRODUCE, version, body, is_flexible=True, timeout_s=_REQUEST_S)
        try:
            return produce_client.decode_response(reader)
        except MalformedMessageError as error:
            text = f"the broker at {address} answered PRODUCE with an invalid response: {error}"
            raise error_for(ErrorCode._TRANSPORT, text) from error

    async def _coordinator(self, key: str, key_type: int) -> str:
        request = group_admin.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        response = await self._call_any(request, group_admin.FindCoordinatorResponse, _COORDINATOR)
        for found in response.coordinators:
            _check(found.error_code, f"the coordinator of {key}", found.error_message)
            return format_address(found.host, found.port)
        raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no coordinator of {key}")


def _check(code: int, subject: str, text: str | None = None) -> None:
    if code:
        error = error_for(code)
        raise error_for(code, f"{subject}: {text or error.message}")
