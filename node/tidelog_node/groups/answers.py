"""Responses that refuse requests, and the errors that callers receive when a write fails."""

from __future__ import annotations

from typing import assert_never

from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1.common_pb2 import Error
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups.events import AllOffsets, GroupRequest, GroupResponse

NO_GENERATION = -1
NO_OFFSET = -1


def error_message(error: TidelogError) -> Error:
    """Return the error in the form that responses use."""
    return Error(code=error.code.code, message=error.message)


def refusal(code: ErrorCode, message: str | None = None) -> Error:
    """Return the error of a code, with its standard text or a more specific message."""
    return error_message(error_for(code, message))


def write_error(error: TidelogError) -> TidelogError:
    """Return the error of a call whose records could not be written (Kafka's appendGroupMetadataErrorToResponseError).

    Errors of the coordinator's own partition become coordinator errors, which clients retry.
    """
    match error.code:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return error_for(ErrorCode.NOT_COORDINATOR, error.message)
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            text = f"the records do not fit into the group's log: {error.message}"
            return error_for(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        case _:
            return error


def commit_error(error: TidelogError) -> TidelogError:
    """Return the error of an offset commit that could not be written (Kafka's appendOffsetCommitError...)."""
    if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return error_for(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, error.message)
    return write_error(error)


def refuse(request: GroupRequest, error: TidelogError) -> GroupResponse:
    """Return the response that refuses a whole request."""
    said = error_message(error)
    match request:
        case pb.JoinGroupRequest():
            is_full = error.code is ErrorCode.GROUP_MAX_SIZE_REACHED
            member_id = "" if is_full else request.member_id
            return pb.JoinGroupResponse(error=said, generation_id=NO_GENERATION, member_id=member_id)
        case pb.SyncGroupRequest():
            return pb.SyncGroupResponse(error=said)
        case pb.HeartbeatRequest():
            return pb.HeartbeatResponse(error=said)
        case pb.LeaveGroupRequest():
            return pb.LeaveGroupResponse(error=said)
        case pb.ConsumerGroupHeartbeatRequest():
            return pb.ConsumerGroupHeartbeatResponse(error=said)
        case pb.OffsetCommitRequest():
            return refuse_commit(request, said)
        case pb.OffsetFetchGroup(all_topics=True):
            return AllOffsets(request.group_id, error=error)
        case pb.OffsetFetchGroup():
            return pb.OffsetFetchGroupResult(group_id=request.group_id, error=said)
        case pb.OffsetDeleteRequest():
            return pb.OffsetDeleteResponse(error=said)
        case pb.ListGroupsRequest():
            return pb.ListGroupsResponse(error=said)
        case pb.DescribeGroupsRequest():
            described = (pb.DescribedGroup(group_id=group_id, error=said) for group_id in request.group_ids)
            return pb.DescribeGroupsResponse(groups=described)
        case pb.ConsumerGroupDescribeRequest():
            consumers = (pb.DescribedConsumerGroup(group_id=group_id, error=said) for group_id in request.group_ids)
            return pb.ConsumerGroupDescribeResponse(groups=consumers)
        case pb.DeleteGroupsRequest():
            deleted = (pb.DeletedGroup(group_id=group_id, error=said) for group_id in request.group_ids)
            return pb.DeleteGroupsResponse(groups=deleted)
    assert_never(request)


def refuse_commit(request: pb.OffsetCommitRequest, error: Error) -> pb.OffsetCommitResponse:
    """Return the response that has the same error for every partition."""
    return pb.OffsetCommitResponse(
        topics=[
            pb.OffsetCommitTopicResult(
                name=topic.name,
                partitions=[
                    pb.OffsetCommitPartitionResult(index=partition.index, error=error) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
