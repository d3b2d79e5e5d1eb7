"""DescribeQuorum, changes of the voters, UnregisterBroker and UpdateFeatures, forwarded to the leading controller.

Kafka's controllers send UpdateRaftVoter to each other. Here a controller announces its addresses whenever it connects
to another one, so the request is for operators and programs that move a controller while it is down.

Kafka's log end offset and high watermark are one after the last record; the controllers' are the last record.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog_foundation.config.endpoints import MAX_CONTROLLER_LISTENERS
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.requests import cluster, features
from tidelog_foundation.requests import quorum as requests
from tidelog_foundation.requests.addresses import ControllerEndpoint, Endpoint
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node import handlers
from tidelog_node.kafka.protocol.messages import quorum as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi
from tidelog_quorum.metadata.description import CLUSTER_METADATA_TOPIC
from tidelog_quorum.metadata.image import MetadataImage

_KRAFT_VERSION = 1
"""The level of ``kraft.version`` that allows changes of the voters (KIP-853)."""

_UPGRADE_TYPES = {
    1: features.FeatureUpgradeType.UPGRADE,
    2: features.FeatureUpgradeType.SAFE_DOWNGRADE,
    3: features.FeatureUpgradeType.UNSAFE_DOWNGRADE,
}


async def describe_quorum(
    node: KafkaNode, request: wire.DescribeQuorumRequest, caller: Caller
) -> wire.DescribeQuorumResponse:
    """Describe the quorum of the controllers, the only partition of ``__cluster_metadata``, with its observers."""
    named = [(t.topic_name, p.partition_index) for t in request.topics[:2] for p in t.partitions[:2]]
    if len(request.topics) > 1 or named != [(CLUSTER_METADATA_TOPIC, 0)]:
        return await _unknown(request)
    try:
        quorum = await handlers.forward(node.context, requests.DescribeQuorumRequest())
    except TidelogError as error:
        return wire.DescribeQuorumResponse(error_code=error.code.code, error_message=error.message)
    state = _state(quorum, node.context.clock.wall_ms())
    state.observers += _brokers(quorum, node.context.metadata.image, node.context.clock.wall_ms())
    name = node.context.controller_listener
    controllers = [
        wire.QuorumNode(v.replica_id, [wire.QuorumListener(e.name or name, e.host, e.port) for e in _endpoints_of(v)])
        for v in quorum.voters
    ]
    return wire.DescribeQuorumResponse(
        error_message=None, topics=[wire.QuorumTopicState(CLUSTER_METADATA_TOPIC, [state])], nodes=controllers
    )


async def add_raft_voter(
    node: KafkaNode, request: wire.AddRaftVoterRequest, caller: Caller
) -> wire.AddRaftVoterResponse:
    """Make a controller that follows the metadata log a voter (KIP-853)."""
    try:
        _check_cluster(node, request.cluster_id)
        await handlers.change_quorum(
            node.context,
            requests.AddRaftVoterRequest(
                voter_id=request.voter_id,
                directory_id=_directory(request.voter_directory_id),
                endpoints=_endpoints(request),
                timeout_ms=request.timeout_ms,
            ),
        )
    except TidelogError as error:
        return wire.AddRaftVoterResponse(error_code=error.code.code, error_message=error.message)
    return wire.AddRaftVoterResponse(error_message=None)


async def remove_raft_voter(
    node: KafkaNode, request: wire.RemoveRaftVoterRequest, caller: Caller
) -> wire.RemoveRaftVoterResponse:
    """Remove a controller from the voters (KIP-853)."""
    call = requests.RemoveRaftVoterRequest(
        voter_id=request.voter_id, directory_id=_directory(request.voter_directory_id)
    )
    try:
        _check_cluster(node, request.cluster_id)
        await handlers.change_quorum(node.context, call)
    except TidelogError as error:
        return wire.RemoveRaftVoterResponse(error_code=error.code.code, error_message=error.message)
    return wire.RemoveRaftVoterResponse(error_message=None)


async def update_raft_voter(
    node: KafkaNode, request: wire.UpdateRaftVoterRequest, caller: Caller
) -> wire.UpdateRaftVoterResponse:
    """Replace a controller's addresses (KIP-853). Every answer names the leading controller if known."""
    leader = wire.CurrentLeader()
    try:
        _check_cluster(node, request.cluster_id)
        quorum = await handlers.forward(node.context, requests.DescribeQuorumRequest())
        leader = _leader(quorum)
        await handlers.change_quorum(node.context, _update(request))
    except TidelogError as error:
        return wire.UpdateRaftVoterResponse(error_code=error.code.code, current_leader=leader)
    return wire.UpdateRaftVoterResponse(current_leader=leader)


async def unregister_broker(
    node: KafkaNode, request: wire.UnregisterBrokerRequest, caller: Caller
) -> wire.UnregisterBrokerResponse:
    """Unregister a broker that is permanently gone."""
    try:
        await handlers.forward(node.context, cluster.UnregisterBrokerRequest(request.broker_id))
    except TidelogError as error:
        return wire.UnregisterBrokerResponse(error_code=error.code.code, error_message=error.message)
    return wire.UnregisterBrokerResponse(error_message=None)


async def update_features(
    node: KafkaNode, request: wire.UpdateFeaturesRequest, caller: Caller
) -> wire.UpdateFeaturesResponse:
    """Change feature levels, all or none. Before version 2 each feature also has the common error."""
    code, text = 0, None
    try:
        updates = tuple(_feature_update(key, caller.version) for key in request.feature_updates)
        call = features.UpdateFeaturesRequest(updates, request.validate_only, request.timeout_ms)
        await handlers.forward(node.context, call)
    except TidelogError as error:
        code, text = error.code.code, error.message
    results = [wire.UpdatableFeatureResult(key.feature, code, text) for key in request.feature_updates]
    return wire.UpdateFeaturesResponse(error_code=code, error_message=text, results=results)


def _check_cluster(node: KafkaNode, cluster_id: str | None) -> None:
    if cluster_id is not None and cluster_id != node.context.cluster_id:
        text = f'this is cluster "{node.context.cluster_id}", not "{cluster_id}"'
        raise error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, text)


def _update(request: wire.UpdateRaftVoterRequest) -> requests.UpdateRaftVoterRequest:
    feature = request.k_raft_version_feature
    if not any(request.voter_directory_id):
        raise error_for(ErrorCode.INVALID_REQUEST, f"controller {request.voter_id} has no directory id")
    if not feature.min_supported_version <= _KRAFT_VERSION <= feature.max_supported_version:
        levels = f"{feature.min_supported_version} to {feature.max_supported_version}"
        text = f"controller {request.voter_id} supports kraft.version {levels}, and not {_KRAFT_VERSION}"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    return requests.UpdateRaftVoterRequest(
        voter_id=request.voter_id,
        directory_id=request.voter_directory_id,
        endpoints=_endpoints(request),
        leader_epoch=request.current_leader_epoch,
    )


def _leader(quorum: requests.DescribeQuorumResponse) -> wire.CurrentLeader:
    leader = next((v for v in quorum.voters if v.replica_id == quorum.leader_id), None)
    endpoint = Endpoint() if leader is None else leader.endpoint
    return wire.CurrentLeader(quorum.leader_id, quorum.leader_epoch, endpoint.host, endpoint.port)


def _endpoints(request: wire.AddRaftVoterRequest | wire.UpdateRaftVoterRequest) -> tuple[ControllerEndpoint, ...]:
    """Return the controller's addresses, with the names of listeners in capitals, as controllers have them.

    One more than a controller can have is enough to refuse the request.

    Raises:
        TidelogError: INVALID_REQUEST, there is none.
    """
    if not request.listeners:
        raise error_for(ErrorCode.INVALID_REQUEST, f"controller {request.voter_id} has no listener in the request")
    named = request.listeners[: MAX_CONTROLLER_LISTENERS + 1]
    return tuple(ControllerEndpoint(x.host, x.port, x.name.upper()) for x in named)


def _endpoints_of(replica: requests.QuorumReplica) -> tuple[ControllerEndpoint, ...]:
    """Return a controller's addresses; a leader of an earlier version names only one."""
    return replica.endpoints or (ControllerEndpoint(replica.endpoint.host, replica.endpoint.port),)


def _directory(directory_id: bytes) -> bytes:
    """Return the directory id, empty for zeros, which match any directory."""
    return directory_id if any(directory_id) else b""


def _feature_update(key: wire.FeatureUpdateKey, version: int) -> features.FeatureUpdate:
    if version == 0:
        kind = (
            features.FeatureUpgradeType.SAFE_DOWNGRADE if key.allow_downgrade else features.FeatureUpgradeType.UPGRADE
        )
        return features.FeatureUpdate(key.feature, key.max_version_level, kind)
    if key.upgrade_type not in _UPGRADE_TYPES:
        text = f"feature {key.feature!r}: unknown upgrade type {key.upgrade_type}, expected 1, 2 or 3"
        raise error_for(ErrorCode.INVALID_UPDATE_VERSION, text)
    kind = _UPGRADE_TYPES[key.upgrade_type]
    return features.FeatureUpdate(key.feature, key.max_version_level, kind)


async def _unknown(request: wire.DescribeQuorumRequest) -> wire.DescribeQuorumResponse:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    code, text = unknown.code, unknown.text
    slices = TimeSlices()
    topics = [
        wire.QuorumTopicState(
            topic.topic_name,
            [
                wire.QuorumPartitionState(partition_index=p.partition_index, error_code=code, error_message=text)
                async for p in slices.of(topic.partitions)
            ],
        )
        async for topic in slices.of(request.topics)
    ]
    return wire.DescribeQuorumResponse(error_message=None, topics=topics)


def _state(quorum: requests.DescribeQuorumResponse, now_ms: int) -> wire.QuorumPartitionState:
    return wire.QuorumPartitionState(
        error_message=None,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark + 1,
        current_voters=[_replica(r, now_ms) for r in quorum.voters],
        observers=[_replica(r, now_ms) for r in quorum.observers],
    )


def _replica(replica: requests.QuorumReplica, now_ms: int) -> wire.ReplicaState:
    fetched_ms, caught_up_ms = replica.last_fetch_age_ms, replica.last_caught_up_age_ms
    return wire.ReplicaState(
        replica_id=replica.replica_id,
        replica_directory_id=replica.directory_id,
        log_end_offset=replica.log_end_offset + 1,
        last_fetch_timestamp=-1 if fetched_ms < 0 else now_ms - fetched_ms,
        last_caught_up_timestamp=-1 if caught_up_ms < 0 else now_ms - caught_up_ms,
    )


def _brokers(quorum: requests.DescribeQuorumResponse, image: MetadataImage, now_ms: int) -> Iterator[wire.ReplicaState]:
    """Yield the nodes that follow the metadata log, which Kafka reports as observers of the quorum.

    A node with the id of a controller is omitted. Kafka's tools take an id for one process and would show the node with
    the controller's address.
    """
    controllers = {r.replica_id for r in (*quorum.voters, *quorum.observers)}
    for progress in (b for b in quorum.brokers if b.broker_id not in controllers):
        registration = image.brokers.get(BrokerId(progress.broker_id))
        directories = () if registration is None else registration.log_dirs
        heard_ms = now_ms - progress.last_heartbeat_age_ms
        yield wire.ReplicaState(
            replica_id=progress.broker_id,
            replica_directory_id=directories[0] if directories else b"",
            log_end_offset=progress.metadata_offset + 1,
            last_fetch_timestamp=heard_ms,
            last_caught_up_timestamp=heard_ms if progress.metadata_offset >= quorum.high_watermark else -1,
        )


APIS: tuple[Api, ...] = (
    MessageApi(wire.DescribeQuorumRequest, describe_quorum),
    MessageApi(wire.AddRaftVoterRequest, add_raft_voter),
    MessageApi(wire.RemoveRaftVoterRequest, remove_raft_voter),
    MessageApi(wire.UpdateRaftVoterRequest, update_raft_voter),
    MessageApi(wire.UnregisterBrokerRequest, unregister_broker),
    MessageApi(wire.UpdateFeaturesRequest, update_features),
)
