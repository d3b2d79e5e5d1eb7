"""Validation of ConsumerGroupHeartbeat requests, independent of the group.

The rules are those of Kafka's GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups.consumer.assignors import Assignment
from tidelog_node.groups.consumer.member import JOINING_EPOCH, LEAVE_GROUP_STATIC_EPOCH
from tidelog_node.groups.messages import ConsumerGroupHeartbeatRequest

_MAX_NAME_LENGTH = 249


def check_request(request: ConsumerGroupHeartbeatRequest, assignors: Sequence[str]) -> None:
    """Raise an error if a request is invalid by itself.

    Raises:
        TidelogError: INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR if the assignor is not among ``assignors``.
    """
    _check_name("member_id", request.member_id)
    if not request.group_id.strip():
        raise _invalid(f"group_id must not be empty or blank: {request.group_id!r}")
    if request.group_instance_id is not None:
        _check_name("group_instance_id", request.group_instance_id)
    if request.rack_id is not None:
        _check_name("rack_id", request.rack_id)
    if request.rebalance_timeout_ms is not None and request.rebalance_timeout_ms <= 0:
        raise _invalid(f"rebalance_timeout_ms must be above 0, and is {request.rebalance_timeout_ms}")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise error_for(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"server_assignor {request.server_assignor!r} is not supported; there are {', '.join(assignors)}",
        )
    _check_epoch(request)


def _check_epoch(request: ConsumerGroupHeartbeatRequest) -> None:
    epoch = request.member_epoch
    if epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms is None:
            raise _invalid("rebalance_timeout_ms must be given when a member joins")
        if request.topic_partitions is None or owned_partitions(request):
            raise _invalid("topic_partitions must be given and empty when a member joins")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("subscribed_topic_names or subscribed_topic_regex must be given when a member joins")
    elif epoch == LEAVE_GROUP_STATIC_EPOCH and request.group_instance_id is None:
        raise _invalid(f"group_instance_id must be given with member_epoch {LEAVE_GROUP_STATIC_EPOCH}")
    elif epoch < LEAVE_GROUP_STATIC_EPOCH:
        raise _invalid(f"member_epoch must be at least {LEAVE_GROUP_STATIC_EPOCH}, and is {epoch}")


def _check_name(field: str, text: str) -> None:
    if not text.strip() or len(text) > _MAX_NAME_LENGTH:
        raise _invalid(f"{field} must have from 1 to {_MAX_NAME_LENGTH} characters, and has {len(text)}: {text[:9]!r}")


def _invalid(message: str) -> TidelogError:
    return error_for(ErrorCode.INVALID_REQUEST, message)


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    """Return the partitions that a member reports as owned, or None if it reports none."""
    if request.topic_partitions is None:
        return None
    return frozenset((topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions)


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether a request has all fields, as it does when a member joins or has missed an answer."""
    if request.member_epoch == JOINING_EPOCH:
        return True
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return subscribes and request.rebalance_timeout_ms is not None and request.topic_partitions is not None
