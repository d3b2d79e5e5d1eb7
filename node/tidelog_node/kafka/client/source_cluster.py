"""A client of the source of a cluster link, which is Apache Kafka or Tidelog.

It needs the rights of a consumer: READ and DESCRIBE of topics and groups, and DESCRIBE_CONFIGS of topics.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar

from tidelog_foundation.config.endpoints import format_address, parse_addresses
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId, LeaderEpoch, TopicId
from tidelog_foundation.link_settings import PLAIN, LinkConfig
from tidelog_foundation.sasl import SaslLogin
from tidelog_foundation.sasl.plain import PlainLogin
from tidelog_foundation.sasl.scram import ScramLogin
from tidelog_foundation.sasl.scram_credentials import MECHANISMS
from tidelog_foundation.security.contexts import client_context
from tidelog_node.fetching import FetchRequest, FetchResponse
from tidelog_node.handlers.link_sources import SourceLeader, SourceMetadata, SourceTopic
from tidelog_node.kafka.client import calls
from tidelog_node.kafka.client.connections import PeerConnections
from tidelog_node.kafka.protocol.fields import Message
from tidelog_node.kafka.protocol.messages import configs, group_admin, group_offsets, metadata, offsets
from tidelog_node.kafka.protocol.messages.fetch_parts import VERSIONS, WITH_TOPIC_IDS

M = TypeVar("M", bound=Message)
_TIMEOUT_S: Final = 10.0
_FETCH_VERSIONS: Final = (WITH_TOPIC_IDS, VERSIONS[1])
"""Versions that name topics by id and report divergence: Apache Kafka 3.1 and later."""
_TOPIC: Final = 2
"""The number of topics among the types of resources with settings."""
_OF_TOPIC: Final = 1
"""The source of a setting that is set on the topic itself (DYNAMIC_TOPIC_CONFIG)."""
_METADATA_VERSIONS: Final = (10, calls.ANY_VERSION[1])
"""Versions with ids of topics."""
_OFFSET_FETCH_VERSIONS: Final = (8, 9)
"""Versions with several groups that name topics, not their ids."""
_NONCE_BYTES: Final = 24


class SourceCluster:
    """A source. Its methods may be called concurrently: each request has its own connection while it lasts."""

    def __init__(self, config: LinkConfig, client_id: str) -> None:
        """Load the certificates.

        Raises:
            ConfigError: The certificates or keys of the settings are invalid.
        """
        context = _context(config) if config.has_tls else None
        self._connections = PeerConnections(
            client_id, None if context is None else lambda: context, _login(config) if config.has_sasl else None
        )
        self._bootstrap = [format_address(*address) for address in parse_addresses(config.bootstrap_servers)]
        self._known: list[str] = []

    async def metadata(self, topics: Collection[str]) -> SourceMetadata:
        """Return the source's answer about topics, from the first broker that answers.

        Raises:
            TidelogError: No broker answers.
        """
        request = metadata.MetadataRequest(
            [metadata.MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
        )
        response = await self._call_any(request, metadata.MetadataResponse, _METADATA_VERSIONS)
        brokers = {BrokerId(b.node_id): format_address(b.host, b.port) for b in response.brokers}
        self._known = list(brokers.values())
        described: dict[str, SourceTopic] = {}
        errors: dict[str, TidelogError] = {}
        for topic in response.topics:
            assert topic.name is not None, "topics are requested by name"
            if topic.error_code:
                errors[topic.name] = error_for(topic.error_code, f"topic {topic.name} of the source")
                continue
            leaders = {
                p.partition_index: SourceLeader(BrokerId(p.leader_id), LeaderEpoch(p.leader_epoch))
                for p in topic.partitions
            }
            described[topic.name] = SourceTopic(TopicId(topic.topic_id), leaders)
        return SourceMetadata(response.cluster_id or "", brokers, described, errors)

    async def topic_settings(self, topic: str) -> dict[str, str]:
        """Return the settings that are set on a topic itself.

        Raises:
            TidelogError: The source refuses, or does not answer.
        """
        settings, errors = await self.settings_of_topics([topic])
        if topic not in settings:
            raise errors.get(topic) or error_for(ErrorCode._TRANSPORT, f"no answer about the settings of topic {topic}")
        return settings[topic]

    async def settings_of_topics(
        self, topics: Collection[str]
    ) -> tuple[dict[str, dict[str, str]], dict[str, TidelogError]]:
        """Return the settings that are set on each topic itself, and the errors of the other topics.

        Raises:
            TidelogError: The source does not answer.
        """
        request = configs.DescribeConfigsRequest(
            [configs.DescribeConfigsResource(_TOPIC, topic, None) for topic in topics]
        )
        response = await self._call_any(request, configs.DescribeConfigsResponse)
        settings: dict[str, dict[str, str]] = {}
        errors: dict[str, TidelogError] = {}
        for result in response.results:
            name = result.resource_name
            if result.error_code:
                text = result.error_message or f"the settings of topic {name}"
                errors[name] = error_for(result.error_code, text)
            else:
                own = (c for c in result.configs if c.config_source == _OF_TOPIC)
                settings[name] = {c.name: c.value for c in own if c.value is not None}
        return settings, errors

    async def fetch(self, address: str, request: FetchRequest, timeout_s: float) -> FetchResponse:
        """Send one fetch to the broker at ``host:port``. The records of the response are views of the received bytes.

        Raises:
            TidelogError: The call failed as a whole; UNSUPPORTED_VERSION: the source is too old.
        """
        response = await calls.fetch(self._connections, address, request, timeout_s, _FETCH_VERSIONS)
        if response.error is not None:
            raise response.error
        return response

    async def list_offsets(
        self, address: str, partitions: Mapping[tuple[str, int], LeaderEpoch], timestamp: int
    ) -> dict[tuple[str, int], int]:
        """Return an offset of each partition that the broker leads in the given leader epoch.

        ``timestamp`` -1 stands for its high watermark, -2 for its start. Partitions with an error are left out.

        Raises:
            TidelogError: The broker does not answer.
        """
        topics: dict[str, list[offsets.ListOffsetsPartition]] = {}
        for (topic, index), epoch in partitions.items():
            topics.setdefault(topic, []).append(offsets.ListOffsetsPartition(index, int(epoch), timestamp))
        wanted = [offsets.ListOffsetsTopic(name, each) for name, each in topics.items()]
        response = await self._call(address, offsets.ListOffsetsRequest(topics=wanted), offsets.ListOffsetsResponse)
        found = ((t.name, p) for t in response.topics for p in t.partitions if not p.error_code)
        return {(name, p.partition_index): p.offset for name, p in found}

    async def groups(self, address: str) -> list[str]:
        """Return the ids of the groups that the broker at ``host:port`` coordinates.

        Raises:
            TidelogError: The broker refuses, or does not answer.
        """
        response = await self._call(address, group_admin.ListGroupsRequest(), group_admin.ListGroupsResponse)
        if response.error_code:
            raise error_for(response.error_code, f"the groups of the source's broker at {address}")
        return [group.group_id for group in response.groups]

    async def committed(
        self, address: str, group_id: str, partitions: Mapping[str, Sequence[int]]
    ) -> dict[tuple[str, int], tuple[int, int, str]]:
        """Return the committed offset, leader epoch and metadata of a group's partitions that have one.

        Offsets that an open transaction may change are left out.

        Raises:
            TidelogError: The broker refuses, or does not answer.
        """
        topics = [group_offsets.OffsetFetchRequestTopic(name, b"", list(each)) for name, each in partitions.items()]
        group = group_offsets.OffsetFetchRequestGroup(group_id, topics=topics)
        request = group_offsets.OffsetFetchRequest(groups=[group], require_stable=True)
        response = await self._call(address, request, group_offsets.OffsetFetchResponse, _OFFSET_FETCH_VERSIONS)
        found: dict[tuple[str, int], tuple[int, int, str]] = {}
        for answered in response.groups:
            if answered.error_code:
                raise error_for(answered.error_code, f"the offsets of group {group_id} on the source")
            for topic in answered.topics:
                for p in topic.partitions:
                    if not p.error_code and p.committed_offset >= 0:
                        value = p.committed_offset, p.committed_leader_epoch, p.metadata or ""
                        found[topic.name, p.partition_index] = value
        return found

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    async def _call_any(self, message: Message, answer: type[M], versions: tuple[int, int] = calls.ANY_VERSION) -> M:
        failure = error_for(ErrorCode._TRANSPORT, "the source has no address")
        for address in dict.fromkeys([*self._known, *self._bootstrap]):
            try:
                return await self._call(address, message, answer, versions)
            except TidelogError as error:
                failure = error
        raise failure

    async def _call(
        self, address: str, message: Message, answer: type[M], versions: tuple[int, int] = calls.ANY_VERSION
    ) -> M:
        return await calls.call(self._connections, address, message, answer, _TIMEOUT_S, versions)


def _context(config: LinkConfig) -> ssl.SSLContext:
    # Imported late: a node without TLS needs no cryptography.
    from tidelog_foundation.security.key_material import load_authorities, load_key_material

    settings = config.tls
    return client_context(settings, load_key_material(settings), load_authorities(settings))


def _login(config: LinkConfig) -> SaslLogin:
    entry = config.login()
    name, password = entry.require("username"), entry.require("password")
    if config.sasl_mechanism == PLAIN:
        return PlainLogin(name, password)
    return ScramLogin(
        MECHANISMS[config.sasl_mechanism], name, password, lambda: secrets.token_urlsafe(_NONCE_BYTES), {}
    )
