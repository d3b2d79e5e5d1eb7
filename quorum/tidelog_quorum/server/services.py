"""The gRPC services of a controller: for storage nodes, for administrators, and for the quorum's administrators."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar, get_type_hints

from tidelog.v1 import admin_service_pb2, controller_service_pb2, quorum_service_pb2
from tidelog_foundation.config.endpoints import MAX_CONTROLLER_LISTENERS, format_address
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.monitoring import process_state
from tidelog_foundation.requests import (
    acls,
    brokers,
    cluster,
    configs,
    delegation_tokens,
    features,
    links,
    partitions,
    processes,
    quorum,
    quotas,
    replicas,
    scram,
    stop_safety,
    topics,
)
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.request import Request, response_type
from tidelog_foundation.transport.services import Call, Caller, ErrorDetails, ResponseStream, Service
from tidelog_quorum.controller.elect_leaders import election_response, election_slices
from tidelog_quorum.controller.features import describe_features
from tidelog_quorum.controller.reassignment import list_partition_reassignments
from tidelog_quorum.metadata.description import (
    cluster_brokers,
    describe_acls,
    describe_client_quotas,
    describe_topic,
    describe_user_scram_credentials,
    list_topics,
)
from tidelog_quorum.metadata.features import own_features
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.link_description import describe_mirror_topics, list_cluster_links
from tidelog_quorum.raft.core.endpoints import ANY_LISTENER, Endpoints
from tidelog_quorum.raft.core.voters import Voter
from tidelog_quorum.raft.protocol import RaftEngine
from tidelog_quorum.server.broker_connections import BrokerConnections, address_of_peer
from tidelog_quorum.server.controller_configs import ControllerConfigs
from tidelog_quorum.server.metadata_feed import MetadataFeed
from tidelog_quorum.server.quorum_controller import QuorumController
from tidelog_quorum.server.token_expiry import wall_clock_ms

R = TypeVar("R")

_MANY_PARTITIONS = 100
"""Finding brokers for more partitions takes more than a few milliseconds."""
_DIRECTORY_ID_SIZE = 16
_DEFAULT_TIMEOUT_MS = 10_000
_MAX_ADDRESS_LENGTH = 255


class _Topic(Protocol):
    @property
    def partitions(self) -> tuple[object, ...]:
        """The partitions that a request names."""
        ...


def controller_service(
    cluster_id: str,
    controller: QuorumController,
    feed: MetadataFeed,
    connections: BrokerConnections,
    listener: str = ANY_LISTENER,
) -> Service:
    """Return the storage nodes' service at a listener. Any controller serves FollowMetadata; only the leader the rest.

    Callers learn the controllers' addresses of the listener with the same name.
    """

    async def hold_connection(request: brokers.HoldConnectionRequest, caller: Caller) -> brokers.HoldConnectionResponse:
        address = address_of_peer(caller.connection)
        return await connections.hold(request.broker_id, request.broker_epoch, address)

    async def follow_metadata(
        request: controller_service_pb2.FollowMetadataRequest, _: Caller
    ) -> AsyncGenerator[controller_service_pb2.FollowMetadataResponse, None]:
        if request.cluster_id != cluster_id:
            text = f"observer {request.observer_id} is of cluster {request.cluster_id!r}, this is {cluster_id!r}"
            raise error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
        async with contextlib.aclosing(feed.follow(request.from_offset, listener)) as responses:
            async for response in responses:
                yield response

    async def alter_token(
        request: delegation_tokens.AlterDelegationTokenRequest,
    ) -> delegation_tokens.AlterDelegationTokenResponse:
        # A new leader computes the HMACs of all tokens with the first request.
        is_long = len(controller.controller.committed.delegation_tokens) > _MANY_PARTITIONS
        return await controller.handle(replace(request, time_ms=wall_clock_ms()), is_long=is_long)

    return Service(
        controller_service_pb2.DESCRIPTOR.services_by_name["ControllerService"],
        {
            "RegisterBroker": _change(controller, brokers.RegisterBrokerRequest),
            "BrokerHeartbeat": _change(controller, brokers.BrokerHeartbeatRequest),
            "HoldConnection": Call(hold_connection, brokers.HoldConnectionRequest, brokers.HoldConnectionResponse),
            "AlterPartition": _change(controller, replicas.AlterPartitionRequest),
            "AssignReplicasToDirs": _change(controller, replicas.AssignReplicasToDirsRequest),
            "FollowMetadata": ResponseStream(
                follow_metadata,
                controller_service_pb2.FollowMetadataRequest,
                controller_service_pb2.FollowMetadataResponse,
            ),
            "AllocateProducerIds": _change(controller, brokers.AllocateProducerIdsRequest),
            "AlterDelegationToken": _limited(alter_token, delegation_tokens.AlterDelegationTokenRequest),
            "ReportMirrorPartitions": _change(
                controller, links.ReportMirrorPartitionsRequest, lambda r: len(r.partitions) > _MANY_PARTITIONS
            ),
            "ReportMirrorSettings": _change(controller, links.ReportMirrorSettingsRequest, lambda r: len(r.topics) > 1),
        },
        _leader_details(controller, listener),
    )


def admin_service(
    cluster_id: str,
    controller: QuorumController,
    listener: str = ANY_LISTENER,
    node_id: int = -1,
    directories: Sequence[Path] = (),
) -> Service:
    """Return the administrators' service at a listener.

    Any controller describes the cluster, the levels of its own loggers by ``node_id``, and its process with the file
    systems of ``directories``; only the leader does the rest.
    """
    calls = AdminCalls(cluster_id, controller, listener, directories)
    return Service(
        admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"],
        {
            "CreateTopics": _mutation(controller, topics.CreateTopicsRequest, _creates_many),
            "DeleteTopics": _mutation(controller, topics.DeleteTopicsRequest, _deletes_many),
            "ListTopics": _view(controller, list_topics),
            "DescribeTopics": _limited(calls.describe_topics, topics.DescribeTopicsRequest),
            "DescribeCluster": _limited(calls.describe_cluster, cluster.DescribeClusterRequest),
            "CreatePartitions": _mutation(controller, topics.CreatePartitionsRequest, _adds_many),
            "IncrementalAlterConfigs": _limited(
                ControllerConfigs(controller, node_id).alter, configs.IncrementalAlterConfigsRequest
            ),
            "DescribeConfigs": _limited(
                ControllerConfigs(controller, node_id).describe, configs.DescribeConfigsRequest
            ),
            "ElectLeaders": _limited(calls.elect_leaders, partitions.ElectLeadersRequest),
            "AlterPartitionReassignments": _change(
                controller,
                partitions.AlterPartitionReassignmentsRequest,
                lambda request: _named_partitions(request.topics) > _MANY_PARTITIONS,
            ),
            "ListPartitionReassignments": _view(controller, list_partition_reassignments),
            "DescribeFeatures": _view(controller, describe_features),
            "UpdateFeatures": _change(controller, features.UpdateFeaturesRequest, lambda _: True),
            "UnregisterBroker": _change(controller, cluster.UnregisterBrokerRequest),
            "DescribeStopSafety": _limited(controller.describe_stop_safety, stop_safety.DescribeStopSafetyRequest),
            "DescribeProcess": _limited(calls.describe_process, processes.DescribeProcessRequest),
            "CreateAcls": _change(controller, acls.CreateAclsRequest, lambda r: len(r.acls) > _MANY_PARTITIONS),
            "DescribeAcls": _limited(calls.describe_acls, acls.DescribeAclsRequest),
            "DeleteAcls": _change(controller, acls.DeleteAclsRequest, lambda _: True),
            "AlterUserScramCredentials": _change(
                controller,
                scram.AlterUserScramCredentialsRequest,
                lambda request: len(request.deletions) + len(request.upsertions) > _MANY_PARTITIONS,
            ),
            "DescribeUserScramCredentials": _view_in_thread(controller, describe_user_scram_credentials),
            "AlterClientQuotas": _change(
                controller, quotas.AlterClientQuotasRequest, lambda r: len(r.alterations) > _MANY_PARTITIONS
            ),
            "DescribeClientQuotas": _limited(calls.describe_client_quotas, quotas.DescribeClientQuotasRequest),
            "CreateDelegationToken": _limited(_change_token, delegation_tokens.CreateDelegationTokenRequest),
            "RenewDelegationToken": _limited(_change_token, delegation_tokens.RenewDelegationTokenRequest),
            "ExpireDelegationToken": _limited(_change_token, delegation_tokens.ExpireDelegationTokenRequest),
            "DescribeDelegationToken": _limited(_change_token, delegation_tokens.DescribeDelegationTokenRequest),
            "CreateClusterLink": _change(controller, links.CreateClusterLinkRequest),
            "AlterClusterLink": _change(controller, links.AlterClusterLinkRequest),
            "DeleteClusterLink": _change(controller, links.DeleteClusterLinkRequest),
            "ListClusterLinks": _view_in_thread(controller, list_cluster_links),
            "CreateMirrorTopic": _change(
                controller, links.CreateMirrorTopicRequest, lambda r: r.num_partitions > _MANY_PARTITIONS
            ),
            "AlterMirrorTopics": _change(controller, links.AlterMirrorTopicsRequest, lambda _: True),
            "DescribeMirrorTopics": _view_in_thread(controller, describe_mirror_topics),
        },
        _leader_details(controller, listener),
    )


def quorum_service(
    cluster_id: str, engine: RaftEngine, controller: QuorumController, listener: str = ANY_LISTENER
) -> Service:
    """Return the service of the quorum's administrators at a listener, whose requests it checks for the Raft engine.

    Only the leader answers, except TakeSnapshot; errors are those of KIP-595 and KIP-853.
    """
    calls = _QuorumCalls(cluster_id, engine, controller, listener)
    handlers: dict[str, Callable[..., Awaitable[object]]] = {
        "DescribeQuorum": calls.describe,
        "AddRaftVoter": calls.add_voter,
        "RemoveRaftVoter": calls.remove_voter,
        "UpdateRaftVoter": calls.update_voter,
        "TransferLeadership": calls.transfer,
        "TakeSnapshot": calls.take_snapshot,
    }
    types = {name: get_type_hints(handler) for name, handler in handlers.items()}
    return Service(
        quorum_service_pb2.DESCRIPTOR.services_by_name["QuorumService"],
        {name: Call(handler, types[name]["request"], types[name]["return"]) for name, handler in handlers.items()},
        _leader_details(controller, listener),
    )


class AdminCalls:
    """The calls that are more than one change or view."""

    def __init__(
        self, cluster_id: str, controller: QuorumController, listener: str, directories: Sequence[Path]
    ) -> None:
        self._cluster_id = cluster_id
        self._controller = controller
        self._listener = listener
        self._directories = directories

    async def describe_topics(self, request: topics.DescribeTopicsRequest) -> topics.DescribeTopicsResponse:
        """Describe topics, many in a thread."""
        image = await self._controller.read(lambda image: image)
        if len(request.topic_names) > _MANY_PARTITIONS:
            return await asyncio.to_thread(_describe_topics, image, request)
        return _describe_topics(image, request)

    async def describe_acls(self, request: acls.DescribeAclsRequest) -> acls.DescribeAclsResponse:
        """Describe ACLs, in a thread if there are many."""
        image = await self._controller.read(lambda image: image)
        if len(image.acls) > _MANY_PARTITIONS:
            return await asyncio.to_thread(describe_acls, image, request)
        return describe_acls(image, request)

    async def describe_client_quotas(
        self, request: quotas.DescribeClientQuotasRequest
    ) -> quotas.DescribeClientQuotasResponse:
        """Describe client quotas, in a thread if there are many."""
        image = await self._controller.read(lambda image: image)
        if len(image.client_quotas) > _MANY_PARTITIONS:
            return await asyncio.to_thread(describe_client_quotas, image, request)
        return describe_client_quotas(image, request)

    async def describe_cluster(self, _: cluster.DescribeClusterRequest) -> cluster.DescribeClusterResponse:
        """Describe the brokers and voters that this controller knows."""
        leader_id, image = self._controller.leader.leader_id, self._controller.controller.committed
        addresses = ((v.voter_id, v.endpoints.address(self._listener)) for v in self._controller.voters)
        voters = tuple(cluster.QuorumVoter(i, Endpoint(*address)) for i, address in addresses if address is not None)
        return cluster.DescribeClusterResponse(
            self._cluster_id, -1 if leader_id is None else leader_id, cluster_brokers(image), voters
        )

    async def describe_process(self, _: processes.DescribeProcessRequest) -> processes.DescribeProcessResponse:
        """Describe this process, in a thread because a file system may not answer for a long time."""
        features = own_features(self._controller.controller.committed.feature_levels)
        return await asyncio.to_thread(process_state.describe_process, self._directories, features)

    async def elect_leaders(self, request: partitions.ElectLeadersRequest) -> partitions.ElectLeadersResponse:
        """Elect leaders slice by slice, with other requests in between."""
        image = await self._controller.read(lambda image: image)
        results: dict[str, list[partitions.ElectLeadersPartitionResult]] = {}
        for part in election_slices(image, request):
            is_long = _named_partitions(part.topics) > _MANY_PARTITIONS
            for topic in (await self._controller.handle(part, is_long=is_long)).topics:
                results.setdefault(topic.name, []).extend(topic.partitions)
        return election_response(results)


class _QuorumCalls:
    """The calls to the Raft engine. Each waits for its commit as long as the request permits."""

    def __init__(self, cluster_id: str, engine: RaftEngine, controller: QuorumController, listener: str) -> None:
        self._cluster_id = cluster_id
        self._engine = engine
        self._controller = controller
        self._listener = listener

    async def describe(self, request: quorum.DescribeQuorumRequest, _: Caller) -> quorum.DescribeQuorumResponse:
        # A replaced leader that does not know it yet must not describe the past.
        await self._engine.read_barrier()
        nodes = tuple(self._controller.broker_progress())
        found = self._engine.describe()
        voters, observers = map(self._at_listener, found.voters), map(self._at_listener, found.observers)
        return replace(
            found, cluster_id=self._cluster_id, brokers=nodes, voters=tuple(voters), observers=tuple(observers)
        )

    async def add_voter(self, request: quorum.AddRaftVoterRequest, _: Caller) -> quorum.AddRaftVoterResponse:
        await self._engine.add_voter(_voter(request), request.timeout_ms or _DEFAULT_TIMEOUT_MS)
        return quorum.AddRaftVoterResponse()

    async def remove_voter(self, request: quorum.RemoveRaftVoterRequest, _: Caller) -> quorum.RemoveRaftVoterResponse:
        _check_voter(request.voter_id, request.directory_id)
        timeout_ms = request.timeout_ms or _DEFAULT_TIMEOUT_MS
        await self._engine.remove_voter(request.voter_id, request.directory_id, timeout_ms)
        return quorum.RemoveRaftVoterResponse()

    async def update_voter(self, request: quorum.UpdateRaftVoterRequest, _: Caller) -> quorum.UpdateRaftVoterResponse:
        timeout_ms = request.timeout_ms or _DEFAULT_TIMEOUT_MS
        await self._engine.update_voter(_voter(request), request.leader_epoch, timeout_ms)
        return quorum.UpdateRaftVoterResponse()

    async def transfer(self, request: quorum.TransferLeadershipRequest, _: Caller) -> quorum.TransferLeadershipResponse:
        to = None if request.voter_id == -1 else request.voter_id
        if to is not None:
            _check_voter(to, b"")
        leader_id = await self._engine.transfer_leadership(to, request.timeout_ms or _DEFAULT_TIMEOUT_MS)
        return quorum.TransferLeadershipResponse(leader_id)

    def _at_listener(self, replica: quorum.QuorumReplica) -> quorum.QuorumReplica:
        if not replica.endpoints:
            return replica
        address = Endpoints(replica.endpoints).address(self._listener)
        return replace(replica, endpoint=Endpoint() if address is None else Endpoint(*address))

    async def take_snapshot(self, request: quorum.TakeSnapshotRequest, _: Caller) -> quorum.TakeSnapshotResponse:
        return quorum.TakeSnapshotResponse(*await self._engine.take_snapshot())


def _change(
    controller: QuorumController, request: type[Request[R]], is_long: Callable[[Any], bool] = lambda _: False
) -> Call[Any, R]:
    """Return a call that the leading controller handles, in a thread if the request is long."""
    return _limited(lambda asked: controller.handle(asked, is_long=is_long(asked)), request)


def _mutation(controller: QuorumController, request: type[Request[R]], is_long: Callable[[Any], bool]) -> Call[Any, R]:
    """Return a call that the quota of mutations governs. Nodes name their client; all others are clients themselves."""
    change = _change(controller, request, is_long)

    async def mutate(asked: Any, caller: Caller) -> R:
        if asked.quota_client is None and not caller.claims_to_be_node:
            asked = replace(asked, quota_client=quotas.QuotaClient(caller.principal.name, caller.client_id))
        return await change.handle(asked, caller)

    return Call(mutate, request, response_type(request))


def _view(controller: QuorumController, describe: Callable[[MetadataImage, Any], R]) -> Call[Any, R]:
    """Return a call that describes the leader's image; the annotations have the type of its request."""
    request: type[Request[R]] = get_type_hints(describe)["request"]
    return _limited(lambda asked: controller.read(lambda image: describe(image, asked)), request)


def _view_in_thread(controller: QuorumController, describe: Callable[[MetadataImage, Any], R]) -> Call[Any, R]:
    """Return a call that describes the leader's image in a thread, because that takes long if the image is large."""

    async def answer(asked: Any) -> R:
        image = await controller.read(lambda image: image)
        return await asyncio.to_thread(describe, image, asked)

    request: type[Request[R]] = get_type_hints(describe)["request"]
    return _limited(answer, request)


def _limited(answer: Callable[[Any], Awaitable[R]], request: type[Request[R]]) -> Call[Any, R]:
    """Return a call that fails after the request's ``timeout_ms``, if it has one."""

    async def handle(asked: Any, _: object) -> R:
        timeout_ms: int = getattr(asked, "timeout_ms", 0)
        try:
            async with asyncio.timeout(timeout_ms / 1000 if timeout_ms > 0 else None):
                return await answer(asked)
        except TimeoutError:
            text = f"the change was not committed within {timeout_ms} ms; it may be later"
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, text) from None

    return Call(handle, request, response_type(request))


def _leader_details(controller: QuorumController, listener: str) -> ErrorDetails:
    """Return the details of errors: NOT_CONTROLLER names the leader (``tidelog-leader-id``, ``-endpoint``)."""

    def details(error: TidelogError) -> Iterable[tuple[str, str]]:
        leader_id = controller.leader.leader_id
        leader = None if leader_id is None else controller.voters.get(leader_id)
        if leader is None or error.code is not ErrorCode.NOT_CONTROLLER:
            return ()
        address = leader.endpoints.address(listener)
        if address is None:
            return (("tidelog-leader-id", str(leader.voter_id)),)
        return ("tidelog-leader-id", str(leader.voter_id)), ("tidelog-leader-endpoint", format_address(*address))

    return details


def _creates_many(request: topics.CreateTopicsRequest) -> bool:
    return sum(max(len(t.assignments), t.num_partitions, 1) for t in request.topics) > _MANY_PARTITIONS


def _deletes_many(request: topics.DeleteTopicsRequest) -> bool:
    return len(request.topic_names) + len(request.topic_ids) > _MANY_PARTITIONS


def _adds_many(request: topics.CreatePartitionsRequest) -> bool:
    return sum(max(1, topic.count) for topic in request.topics) > _MANY_PARTITIONS


def _named_partitions(topics: Iterable[_Topic]) -> int:
    """Return the number of partitions; a topic without any counts as one."""
    return sum(max(1, len(topic.partitions)) for topic in topics)


async def _change_token(_: object) -> NoReturn:
    raise error_for(ErrorCode.UNSUPPORTED_VERSION, "nodes, not controllers, serve requests for delegation tokens")


def _describe_topics(image: MetadataImage, request: topics.DescribeTopicsRequest) -> topics.DescribeTopicsResponse:
    found = (describe_topic(image, name) for name in dict.fromkeys(request.topic_names))
    return topics.DescribeTopicsResponse(tuple(found))


def _voter(request: quorum.AddRaftVoterRequest | quorum.UpdateRaftVoterRequest) -> Voter:
    _check_voter(request.voter_id, request.directory_id)
    named = request.endpoints
    for endpoint in named[:MAX_CONTROLLER_LISTENERS]:
        if not endpoint.host or not 0 < endpoint.port <= 65_535 or len(str(endpoint)) > _MAX_ADDRESS_LENGTH:
            address = str(endpoint)[:_MAX_ADDRESS_LENGTH]
            text = f'controller {request.voter_id} cannot be reached at "{address}": host and port must be given'
            raise error_for(ErrorCode.INVALID_REQUEST, text)
    if not 0 < len(named) <= MAX_CONTROLLER_LISTENERS or len({endpoint.name for endpoint in named}) < len(named):
        names = ", ".join(endpoint.name or "one without a name" for endpoint in named[:MAX_CONTROLLER_LISTENERS])
        text = f"controller {request.voter_id} must have 1 to {MAX_CONTROLLER_LISTENERS} listeners with different names"
        raise error_for(ErrorCode.INVALID_REQUEST, f"{text}, but the request has {names or 'none'}")
    return Voter(request.voter_id, Endpoints(named), request.directory_id)


def _check_voter(voter_id: int, directory_id: bytes) -> None:
    if voter_id < 0:
        raise error_for(ErrorCode.INVALID_REQUEST, f"{voter_id} is not a controller's id: it must be at least 0")
    if len(directory_id) not in (0, _DIRECTORY_ID_SIZE):
        text = f"the directory id of controller {voter_id} has {len(directory_id)} bytes, it must have 16 or none"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
