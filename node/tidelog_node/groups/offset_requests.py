"""Offset commits, fetches and deletions of a group: their permission checks, writes and answers."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups.answers import commit_error
from tidelog_node.groups.classic import ClassicGroup, membership
from tidelog_node.groups.events import GroupCall
from tidelog_node.groups.loaded_groups import LoadedGroup, not_found
from tidelog_node.groups.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetFetchGroup,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from tidelog_node.groups.offsets import requests
from tidelog_node.groups.offsets.deleted_topics import DeletedTopics
from tidelog_node.groups.step import Answer, Effect, Step
from tidelog_node.shards.events import RecordsTransaction

_NO_EPOCH = -1


def commit(
    loaded: LoadedGroup, call: GroupCall, request: OffsetCommitRequest, deleted: DeletedTopics, step: Step
) -> None:
    """Handle OffsetCommit. A commit without a generation creates a simple group if the group does not exist.

    Raises:
        TidelogError: GROUP_ID_NOT_FOUND, or ILLEGAL_GENERATION for clients before KIP-848, and the errors of the
            group's own check.
    """
    _check_commit(loaded, request, step)
    changes, topics = requests.commit(request.topics, request.retention_time_ms, step)
    response = OffsetCommitResponse(topics)
    if not changes:
        step.respond(call.call_id, response)
        return

    step.write(
        loaded.group_id,
        (),
        _Committed(call.call_id, request, response, loaded.group_id, deleted),
        offsets=(*requests.deletions(deleted.offsets_of(loaded.group_id, loaded.offsets)), *changes),
    )


@dataclass(frozen=True, slots=True)
class _Committed(Answer):
    """The answer to a commit, which also deletes the group's offsets of deleted topics."""

    response: OffsetCommitResponse
    group_id: str
    deleted: DeletedTopics

    def written(self, step: Step) -> None:
        self.deleted.note_gone(self.group_id)

    def failed(self, step: Step, error: TidelogError) -> None:
        topics = requests.failed_commit(self.response.topics, commit_error(error))
        step.respond(self.call_id, OffsetCommitResponse(topics))


def txn_commit(
    loaded: LoadedGroup, call: GroupCall, request: TxnOffsetCommitRequest, deleted: DeletedTopics, step: Step
) -> None:
    """Handle TxnOffsetCommit. The offsets take effect when the transaction is committed.

    Raises:
        TidelogError: ILLEGAL_GENERATION if the group does not exist, and the errors of the group's own check.
    """
    _check_txn_commit(loaded, request)
    changes, topics = requests.commit(request.topics, None, step)
    response = TxnOffsetCommitResponse(topics)
    if not changes:
        step.respond(call.call_id, response)
        return
    gone = requests.deletions(deleted.offsets_of(loaded.group_id, loaded.offsets))
    if gone:
        # Not in the transaction: an abort must not bring them back.
        step.write(loaded.group_id, (), _Forgotten(loaded.group_id, deleted), offsets=gone)
    transaction = RecordsTransaction(request.producer_id, request.producer_epoch, request.guard)
    effect = _CommittedInTransaction(call.call_id, request, response)
    step.write(loaded.group_id, (), effect, offsets=changes, transaction=transaction)


@dataclass(frozen=True, slots=True)
class _Forgotten(Effect):
    """The deletion of a group's offsets of deleted topics."""

    group_id: str
    deleted: DeletedTopics

    def written(self, step: Step) -> None:
        self.deleted.note_gone(self.group_id)


@dataclass(frozen=True, slots=True)
class _CommittedInTransaction(Answer):
    """The answer to a commit in a transaction."""

    response: TxnOffsetCommitResponse

    def failed(self, step: Step, error: TidelogError) -> None:
        topics = requests.failed_commit(self.response.topics, commit_error(error))
        step.respond(self.call_id, TxnOffsetCommitResponse(topics))


def fetch(loaded: LoadedGroup, call: GroupCall, request: OffsetFetchGroup, step: Step) -> None:
    """Handle OffsetFetch of one group. A group that does not exist has no offsets.

    Raises:
        TidelogError: UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH, in groups of KIP-848's protocol.
    """
    if not isinstance(loaded.group, ClassicGroup):
        epoch = _NO_EPOCH if request.member_id is None else request.member_epoch
        loaded.group.check_fetch(request.member_id, epoch)
    step.respond(call.call_id, requests.fetch(request, loaded.offsets))


def delete(loaded: LoadedGroup, call: GroupCall, request: OffsetDeleteRequest, step: Step) -> None:
    """Handle OffsetDelete.

    Raises:
        TidelogError: GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP if the members are not consumers.
    """
    group = loaded.group
    if not loaded.exists:
        raise not_found(loaded.group_id)
    if isinstance(group, ClassicGroup) and not group.is_empty and not group.uses_consumer_protocol:
        raise error_for(
            ErrorCode.NON_EMPTY_GROUP, f"group {loaded.group_id} has members of the type {group.protocol_type!r}"
        )
    changes, response = requests.delete(request, loaded.offsets, group.is_subscribed_to)
    if not changes:
        step.respond(call.call_id, response)
        return
    step.write(loaded.group_id, (), Answer(call.call_id, request, response), offsets=changes)


def _check_commit(loaded: LoadedGroup, request: OffsetCommitRequest, step: Step) -> None:
    epoch = request.generation_id_or_member_epoch
    if not loaded.exists and epoch >= 0:
        if request.without_member_epochs:
            raise error_for(
                ErrorCode.ILLEGAL_GENERATION, f"there is no group {loaded.group_id} with generation {epoch}"
            )
        raise not_found(loaded.group_id)
    if isinstance(loaded.group, ClassicGroup):
        membership.check_commit(loaded.group, request)
        membership.keep_alive(loaded.group, request.member_id, step)
    else:
        knows_epochs = not request.without_member_epochs
        loaded.group.check_commit(request.member_id, epoch, request.group_instance_id, knows_epochs=knows_epochs)


def _check_txn_commit(loaded: LoadedGroup, request: TxnOffsetCommitRequest) -> None:
    """Refuse a commit of a member that has lost its partitions (KIP-447).

    Clients that do not name a member are not checked. Not even a commit by a member keeps its session alive.
    """
    generation, group = request.generation_id_or_member_epoch, loaded.group
    names_member = generation >= 0 or request.member_id or request.group_instance_id is not None
    if not loaded.exists and generation >= 0:
        text = f"there is no group {loaded.group_id} with generation {generation}"
        raise error_for(ErrorCode.ILLEGAL_GENERATION, text)
    if not names_member or (generation < 0 and group.is_empty):
        return
    if isinstance(group, ClassicGroup):
        membership.check_generation(group, request.member_id, request.group_instance_id, generation)
        return
    try:
        group.check_commit(request.member_id, generation, request.group_instance_id)
    except TidelogError as error:
        if error.code is ErrorCode.STALE_MEMBER_EPOCH:
            raise error_for(ErrorCode.ILLEGAL_GENERATION, error.message) from None
        raise
