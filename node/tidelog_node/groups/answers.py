"""Responses that refuse requests, and the errors that callers receive when a write fails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups import messages
from tidelog_node.groups.events import AllOffsets, GroupRequest, GroupResponse
from tidelog_node.shards.write_errors import coordinator_error


def write_error(error: TidelogError) -> TidelogError:
    """Return the error of a call whose records were not written (Kafka's appendGroupMetadataErrorToResponseError)."""
    if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        text = f"the records do not fit into the group's log: {error.message}"
        return error_for(ErrorCode.UNKNOWN_SERVER_ERROR, text)
    return coordinator_error(error) or error


def commit_error(error: TidelogError) -> TidelogError:
    """Return the error of an offset commit that could not be written (Kafka's appendOffsetCommitError...)."""
    if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return error_for(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, error.message)
    return write_error(error)


def refuse_write(request: GroupRequest, error: TidelogError) -> GroupResponse:
    """Return the response that refuses a request whose records could not be written."""
    is_deletion = isinstance(request, messages.OffsetDeleteRequest)
    return refuse(request, commit_error(error) if is_deletion else write_error(error))


def refuse(request: GroupRequest, error: TidelogError) -> GroupResponse:
    """Return the response that refuses a whole request."""
    said = error.detached()
    match request:
        case messages.JoinGroupRequest():
            is_full = error.code is ErrorCode.GROUP_MAX_SIZE_REACHED
            member_id = "" if is_full else request.member_id
            return messages.JoinGroupResponse(error=said, member_id=member_id)
        case messages.SyncGroupRequest():
            return messages.SyncGroupResponse(error=said)
        case messages.HeartbeatRequest():
            return messages.HeartbeatResponse(error=said)
        case messages.LeaveGroupRequest():
            return messages.LeaveGroupResponse(error=said)
        case messages.ConsumerGroupHeartbeatRequest():
            return messages.ConsumerGroupHeartbeatResponse(error=said)
        case messages.OffsetCommitRequest():
            return messages.OffsetCommitResponse(_refused_offsets(request.topics, said))
        case messages.TxnOffsetCommitRequest():
            return messages.TxnOffsetCommitResponse(_refused_offsets(request.topics, said))
        case messages.OffsetFetchGroup(all_topics=True):
            return AllOffsets(request.group_id, error=said)
        case messages.OffsetFetchGroup():
            return messages.OffsetFetchGroupResult(group_id=request.group_id, error=said)
        case messages.OffsetDeleteRequest():
            return messages.OffsetDeleteResponse(error=said)
        case messages.ListGroupsRequest():
            return messages.ListGroupsResponse(error=said)
        case messages.DescribeGroupsRequest():
            described = (messages.DescribedGroup(group_id, said) for group_id in request.group_ids)
            return messages.DescribeGroupsResponse(tuple(described))
        case messages.ConsumerGroupDescribeRequest():
            consumers = (messages.DescribedConsumerGroup(group_id, said) for group_id in request.group_ids)
            return messages.ConsumerGroupDescribeResponse(tuple(consumers))
        case messages.DeleteGroupsRequest():
            deleted = (messages.DeletedGroup(group_id, said) for group_id in request.group_ids)
            return messages.DeleteGroupsResponse(tuple(deleted))
    assert_never(request)


def _refused_offsets(
    topics: Iterable[messages.OffsetCommitTopic], error: TidelogError
) -> tuple[messages.OffsetCommitTopicResult, ...]:
    """Return the results of a commit that has the same error for every partition."""
    return tuple(
        messages.OffsetCommitTopicResult(
            topic.name, tuple(messages.OffsetCommitPartitionResult(p.index, error) for p in topic.partitions)
        )
        for topic in topics
    )
