"""The list of a cluster's groups: every node returns those that it coordinates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tidelog.admin.attempts import now_ms
from tidelog.admin.groups.model import (
    ConsumerGroupListing,
    ConsumerGroupState,
    ConsumerGroupType,
    ListConsumerGroupsResult,
)
from tidelog.cluster import ClusterClient, Connection
from tidelog.consumer.assignors.protocol import PROTOCOL_TYPE
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import TidelogError, error_for
from tidelog_foundation.waiting import ReportedWait

_ATTEMPT_MS = 5_000
"""The longest wait for a node's answer before the next attempt."""


async def list_groups(
    cluster: ClusterClient,
    states: Iterable[ConsumerGroupState] | None,
    types: Iterable[ConsumerGroupType] | None,
    timeout_ms: float,
) -> ListConsumerGroupsResult:
    """Ask every node; retry nodes that are loading or unreachable until the deadline.

    Raises:
        TidelogError: no node answered the request for metadata.
    """
    deadline_ms = now_ms() + timeout_ms
    request = pb.ListGroupsRequest(
        states_filter=sorted({state.kafka_name for state in states or ()}),
        types_filter=sorted({kind.kafka_name for kind in types or ()}),
    )
    metadata = await cluster.refresh([], timeout_ms=timeout_ms)
    answers = await asyncio.gather(*(_ask(cluster, node, request, deadline_ms) for node in sorted(metadata.brokers)))
    groups = {g.group_id: g for found, _ in answers for g in found}
    errors = [error for _, error in answers if error is not None]
    return ListConsumerGroupsResult([groups[g] for g in sorted(groups)], errors)


async def _ask(
    cluster: ClusterClient, node_id: int, request: pb.ListGroupsRequest, deadline_ms: float
) -> tuple[list[ConsumerGroupListing], TidelogError | None]:
    async def call(connection: Connection) -> pb.ListGroupsResponse:
        timeout_s = max(min(deadline_ms - now_ms(), _ATTEMPT_MS), 1) / 1000
        return await connection.groups.ListGroups(request, timeout=timeout_s)

    with ReportedWait(f"the groups of node {node_id}") as wait:
        attempt = 0
        found: list[ConsumerGroupListing] = []
        while True:
            try:
                response = await cluster.connection(node_id).call(call)
            except TidelogError as failure:
                error: TidelogError | None = failure
            else:
                found = [_listing(g) for g in response.groups if g.protocol_type in ("", PROTOCOL_TYPE)]
                error = error_for(response.error.code, response.error.message) if response.HasField("error") else None
            attempt += 1
            wait_ms = cluster.backoff.wait_ms(attempt)
            if error is None or not error.code.retriable or now_ms() + wait_ms >= deadline_ms:
                return found, error
            wait.note(error)
            await asyncio.sleep(wait_ms / 1000)


def _listing(group: pb.GroupListing) -> ConsumerGroupListing:
    return ConsumerGroupListing(
        group.group_id,
        not group.protocol_type,
        ConsumerGroupState.parse(group.group_state),
        ConsumerGroupType.parse(group.group_type),
    )
