"""Deletion of groups, and removal of their members (KIP-345)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.admin.attempts import ATTEMPT_MS, ask_coordinators
from tidelog.admin.groups.descriptions import describe_groups
from tidelog.admin.groups.model import MemberToRemove
from tidelog.admin.operations import Outcomes
from tidelog.cluster import ClusterClient, Connection, Coordinators
from tidelog.cluster.answers import error_of
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for


async def delete_groups(
    cluster: ClusterClient, coordinators: Coordinators, group_ids: Iterable[str], timeout_ms: float
) -> Outcomes[str, None]:
    """Delete groups without members, and their offsets.

    After a lost answer, GROUP_ID_NOT_FOUND counts as success.
    """
    unanswered: set[str] = set()

    async def ask(connection: Connection, group_ids: list[str], timeout_s: float) -> Outcomes[str, None]:
        before = unanswered & set(group_ids)
        unanswered.update(group_ids)
        request = pb.DeleteGroupsRequest(group_ids=group_ids)
        response = await connection.groups.DeleteGroups(request, timeout=timeout_s)
        unanswered.difference_update(group_ids)
        outcomes = {g.group_id: error_of(g) for g in response.groups}
        gone = {g for g, e in outcomes.items() if e is not None and e.code is ErrorCode.GROUP_ID_NOT_FOUND}
        return {g: None if g in before & gone else e for g, e in outcomes.items()}

    return await ask_coordinators(coordinators, group_ids, ask, backoff=cluster.backoff, timeout_ms=timeout_ms)


async def remove_members(
    cluster: ClusterClient,
    coordinators: Coordinators,
    group_id: str,
    members: Sequence[MemberToRemove] | None,
    reason: str,
    timeout_ms: float,
) -> dict[MemberToRemove, TidelogError | None]:
    """Remove members (None: all), as ``KafkaAdminClient.removeMembersFromConsumerGroup`` does.

    Raises:
        TidelogError: the group's error, for example GROUP_ID_NOT_FOUND.
    """
    leaving = await _all_members(cluster, coordinators, group_id, timeout_ms) if members is None else members
    if not leaving:
        return {}
    request = pb.LeaveGroupRequest(
        group_id=group_id,
        members=[
            pb.LeavingMember(member_id=m.member_id, group_instance_id=m.group_instance_id, reason=reason)
            for m in leaving
        ],
    )
    response = await coordinators.ask(
        group_id,
        lambda c, t: c.groups.LeaveGroup(request, timeout=t),
        lambda r: [r.error] if r.HasField("error") else [],
        timeout_ms=timeout_ms,
        attempt_ms=ATTEMPT_MS,
    )
    if (error := error_of(response)) is not None:
        raise error
    # The response lists the members in the order of the request, and fills in the ids of those named by instance.
    silent = error_for(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator's answer does not contain it")
    outcomes: dict[MemberToRemove, TidelogError | None] = dict.fromkeys(leaving, silent)
    for member, left in zip(leaving, response.members, strict=False):
        outcomes[member] = error_of(left)
    return outcomes


async def _all_members(
    cluster: ClusterClient, coordinators: Coordinators, group_id: str, timeout_ms: float
) -> list[MemberToRemove]:
    found = (await describe_groups(cluster, coordinators, [group_id], timeout_ms))[group_id]
    if isinstance(found, TidelogError):
        raise found
    return [
        MemberToRemove(m.group_instance_id) if m.group_instance_id else MemberToRemove(member_id=m.member_id)
        for m in found.members
    ]
