"""The transports and settings of a node's requests to other nodes, by the protocol of its inter-broker listener."""

from __future__ import annotations

from tidelog_foundation.transport.channels import ChannelSecurity
from tidelog_node.fetching import ReplicaTransport
from tidelog_node.handlers.node_calls import NodeCalls
from tidelog_node.kafka.client.node_calls import KafkaNodeCalls
from tidelog_node.kafka.client.replica_transport import KafkaReplicaTransport
from tidelog_node.partitions.fetchers.leader_fetcher import FetcherSettings
from tidelog_node.server.config import NodeConfig
from tidelog_node.server.grpc_node_calls import GrpcNodeCalls
from tidelog_node.server.grpc_replica_transport import GrpcReplicaTransport


def replica_transport(config: NodeConfig, security: ChannelSecurity) -> ReplicaTransport:
    """Return the transport for the protocol of the inter-broker listener."""
    if config.inter_broker_listener.speaks_grpc:
        return GrpcReplicaTransport(security)
    return KafkaReplicaTransport(f"node-{config.node_id}-fetcher", security.certificates, security.login)


def node_calls(config: NodeConfig, security: ChannelSecurity) -> NodeCalls:
    """Return the calls of coordinators to other nodes, over the protocol of the inter-broker listener."""
    if config.inter_broker_listener.speaks_grpc:
        return GrpcNodeCalls(security)
    return KafkaNodeCalls(f"node-{config.node_id}-transactions", security.certificates, security.login)


def fetcher_settings(config: NodeConfig) -> FetcherSettings:
    """Return the settings of the replica fetchers."""
    return FetcherSettings(
        max_wait_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        partition_max_bytes=config.replica_fetch_max_bytes,
        response_max_bytes=config.replica_fetch_response_max_bytes,
        max_backoff_ms=config.replica_fetch_backoff_ms,
        timeout_ms=config.replica_socket_timeout_ms,
    )
