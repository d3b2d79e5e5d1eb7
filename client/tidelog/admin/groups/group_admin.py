"""The admin client's operations on consumer groups, with the names of confluent-kafka and, beyond it, of Kafka."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tidelog.admin.groups.descriptions import describe_groups, list_groups
from tidelog.admin.groups.model import (
    ConsumerGroupDescription,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ListConsumerGroupsResult,
    MemberToRemove,
    PartitionLag,
)
from tidelog.admin.groups.offsets import GroupOffsets, group_lags
from tidelog.admin.groups.removal import delete_groups, remove_members
from tidelog.admin.offsets import IsolationLevel
from tidelog.admin.operations import Future, Operations, Outcomes
from tidelog.message import TopicPartition
from tidelog_foundation.errors import TidelogError


class GroupAdmin(Operations):
    """Operations on consumer groups. ``request_timeout`` is always in seconds (default: request.timeout.ms).

    Requests to a coordinator that is loading or moving are retried until then.
    """

    def list_consumer_groups(
        self,
        *,
        states: Collection[ConsumerGroupState] | None = None,
        types: Collection[ConsumerGroupType] | None = None,
        request_timeout: float | None = None,
    ) -> Future[ListConsumerGroupsResult]:
        """List the groups of all nodes, optionally only those in some states or of some types.

        The ``errors`` of the result contain the nodes that did not answer. Groups of other clients, such as Kafka
        Connect, are omitted.

        Raises:
            TypeError: an element has another type.
        """
        _check_all("states", states or (), ConsumerGroupState)
        _check_all("types", types or (), ConsumerGroupType)

        return self._future(list_groups(self._cluster, states, types, self._request_ms(request_timeout)))

    def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ConsumerGroupDescription]]:
        """Describe groups of both protocols: state, coordinator, assignor, and members with their partitions.

        ``include_authorized_operations`` adds the operations that the client may perform.

        Futures fail with KafkaException: GROUP_ID_NOT_FOUND (KIP-1043); _INVALID_ARG if the group is not a consumer
        group; COORDINATOR_NOT_AVAILABLE and similar errors if no coordinator answered in time.

        Raises:
            TypeError, ValueError: ``group_ids`` is a string instead of a list, or empty, or contains an empty id.
        """
        ids = _group_ids(group_ids)

        async def describe() -> Outcomes[str, ConsumerGroupDescription]:
            return await describe_groups(
                self._cluster,
                self._coordinators,
                ids,
                self._request_ms(request_timeout),
                with_operations=include_authorized_operations,
            )

        return self._futures(ids, describe())

    def delete_consumer_groups(
        self, group_ids: Iterable[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Delete groups without members, with their offsets.

        Futures fail with KafkaException: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND. Raise as
        :meth:`describe_consumer_groups`.
        """
        ids = _group_ids(group_ids)

        timeout_ms = self._request_ms(request_timeout)
        return self._futures(ids, delete_groups(self._cluster, self._coordinators, ids, timeout_ms))

    def list_consumer_group_offsets(
        self,
        list_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        *,
        require_stable: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Return the committed offsets of groups, for the named partitions or for all that have one (None).

        The offset is OFFSET_INVALID if none is committed. ``require_stable`` waits for transactions that may change an
        offset (KIP-447).

        Raises:
            TypeError, ValueError: a group has no id or is repeated; a partition is invalid or has an offset.
        """
        groups = _checked(list_consumer_group_offsets_request)
        for partition in (p for group in groups for p in group.topic_partitions or ()):
            if partition.offset >= 0:
                raise ValueError(f"{partition!r} must not have an offset")

        fetched = self._offsets(request_timeout).fetch(groups, require_stable)
        return self._futures([group.group_id for group in groups], fetched)

    def alter_consumer_group_offsets(
        self,
        alter_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Set offsets of groups without members; a group that does not exist is created.

        A result contains the partitions, with ``error`` set for those that were refused. A future fails with
        KafkaException if the whole group was refused: UNKNOWN_MEMBER_ID means that it has members.

        Raises:
            TypeError, ValueError: see :meth:`list_consumer_group_offsets`; a partition has no offset.
        """
        groups = _checked(alter_consumer_group_offsets_request)
        for group in groups:
            _check_named(group)
            for partition in group.topic_partitions or ():
                if partition.offset < 0:
                    raise ValueError(f"{partition!r} must have an offset of at least 0")

        return self._futures([group.group_id for group in groups], self._offsets(request_timeout).commit(groups))

    def delete_consumer_group_offsets(
        self,
        delete_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Delete committed offsets of groups (KIP-496).

        A result contains the partitions, with ``error`` set for those that were refused: GROUP_SUBSCRIBED_TO_TOPIC
        means that a member reads the topic. A future fails with KafkaException if the whole group was refused:
        GROUP_ID_NOT_FOUND.

        Raises:
            TypeError, ValueError: see :meth:`list_consumer_group_offsets`; no partition is named.
        """
        groups = _checked(delete_consumer_group_offsets_request)
        for group in groups:
            _check_named(group)

        return self._futures([group.group_id for group in groups], self._offsets(request_timeout).delete(groups))

    def remove_members_from_consumer_group(
        self,
        group_id: str,
        members: Iterable[MemberToRemove] | None = None,
        *,
        reason: str = "",
        request_timeout: float | None = None,
    ) -> Future[dict[MemberToRemove, TidelogError | None]]:
        """Remove members from a group of the classic protocol, or all of them if None (KIP-345, KIP-800).

        The result maps each member to None, or to the error for which it was not removed: UNKNOWN_MEMBER_ID. The future
        fails with KafkaException if the whole group was refused. A running member joins again.

        Raises:
            ValueError: ``group_id`` is empty, or a member has neither an instance id nor a member id.
        """
        _group_ids([group_id])
        leaving = None if members is None else list(members)
        for member in leaving or ():
            if not member.group_instance_id and not member.member_id:
                raise ValueError("a member to remove must have a group_instance_id or a member_id")

        timeout_ms = self._request_ms(request_timeout)
        text = reason or "member was removed by the admin client"
        return self._future(remove_members(self._cluster, self._coordinators, group_id, leaving, text, timeout_ms))

    def consumer_group_lags(
        self,
        group_ids: Iterable[str],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        request_timeout: float | None = None,
    ) -> dict[str, Future[list[PartitionLag]]]:
        """Return the lag of each group, for the partitions with a committed offset and those owned by a member.

        Futures fail with the errors of :meth:`describe_consumer_groups`; an error of one partition is part of its lag.
        """
        ids = _group_ids(group_ids)

        timeout_ms = self._request_ms(request_timeout)
        return self._futures(ids, group_lags(self._cluster, self._coordinators, ids, isolation_level, timeout_ms))

    def _offsets(self, request_timeout: float | None) -> GroupOffsets:
        return GroupOffsets(self._cluster, self._coordinators, self._request_ms(request_timeout))


def _group_ids(group_ids: Iterable[str]) -> list[str]:
    if isinstance(group_ids, str):
        raise TypeError(f"group_ids must be a list of ids, not the string {group_ids!r}")
    ids = list(dict.fromkeys(group_ids))
    _check_all("group_ids", ids, str)
    if not ids:
        raise ValueError("group_ids must name at least one group")
    if "" in ids:
        raise ValueError("a group id must not be empty")
    return ids


def _check_all(name: str, values: Iterable[object], kind: type) -> None:
    for value in values:
        if not isinstance(value, kind):
            raise TypeError(f"{name} must contain only {kind.__name__}, not {value!r}")


def _checked(groups: Sequence[ConsumerGroupTopicPartitions]) -> list[ConsumerGroupTopicPartitions]:
    found = list(groups)
    _check_all("the request", found, ConsumerGroupTopicPartitions)
    if len(_group_ids([group.group_id for group in found])) < len(found):
        raise ValueError("a group must not be named twice")
    for group in found:
        partitions = group.topic_partitions
        if partitions is None:
            continue
        _check_all("topic_partitions", partitions, TopicPartition)
        if not partitions:
            raise ValueError(f'topic_partitions of group "{group.group_id}" must not be empty')
        for partition in partitions:
            if not partition.topic or partition.partition < 0:
                raise ValueError(f"{partition!r} is invalid: it must have a topic and a partition of at least 0")
    return found


def _check_named(group: ConsumerGroupTopicPartitions) -> None:
    if group.topic_partitions is None:
        raise ValueError(f'topic_partitions of group "{group.group_id}" must name partitions')
