"""The output of ``tidelog group describe``: state, members and lag, as in kafka-consumer-groups.sh."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import typer

from tidelog.admin import ConsumerGroupDescription, ConsumerGroupState, MemberDescription, PartitionLag
from tidelog.message import TopicPartition
from tidelog_cli.output.printing import error_document, fail, print_json, print_records, print_warning, settle

if TYPE_CHECKING:
    from tidelog.admin import AdminClient
    from tidelog_cli.options.connection import Session

_STATE_COLUMNS = ("group", "coordinator", "assignor", "state", "type", "members")
_OFFSET_COLUMNS = ("group", "topic", "partition", "current_offset", "log_end_offset", "lag", "consumer_id")
_OF_MEMBER = ("host", "client_id")
"""Member columns that are shown when the members are not."""
_REBALANCING = (
    ConsumerGroupState.PREPARING_REBALANCING,
    ConsumerGroupState.COMPLETING_REBALANCING,
    ConsumerGroupState.ASSIGNING,
    ConsumerGroupState.RECONCILING,
)


@dataclass(frozen=True, slots=True)
class GroupSections:
    """The sections to show for each group."""

    state: bool
    members: bool
    offsets: bool

    @classmethod
    def of(cls, *, state: bool, members: bool, offsets: bool) -> GroupSections:
        """Return the requested sections, all if none is requested."""
        is_any = state or members or offsets
        return cls(state or not is_any, members or not is_any, offsets or not is_any)


def describe_groups(session: Session, admin: AdminClient, groups: list[str], sections: GroupSections) -> None:
    """Print the sections of groups.

    Raises:
        TidelogError: GROUP_ID_NOT_FOUND, and other errors of the groups, for all together after the rest was printed.
    """
    timeout = session.timeout_s
    found, errors = settle(admin.describe_consumer_groups(groups, request_timeout=timeout) if groups else {})
    lags: dict[str, list[PartitionLag]] = {}
    if sections.offsets and found:
        lags, failed = settle(admin.consumer_group_lags(found, request_timeout=timeout))
        errors |= failed
    documents = [_document(group, lags.get(name, []), sections) for name, group in found.items()]
    if session.as_json:
        failures = [{"group": name, "error": error_document(error)} for name, error in errors.items()]
        print_json({"groups": [*documents, *failures]})
    else:
        for index, (group, document) in enumerate(zip(found.values(), documents, strict=True)):
            if index:
                typer.echo()
            _print(group, document)
    fail(errors.values())


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as ``flights:0,1;orders:3``, "-" for none."""
    ordered = groupby(sorted(partitions), key=lambda p: p.topic)
    return ";".join(f"{topic}:{','.join(str(p.partition) for p in of_topic)}" for topic, of_topic in ordered) or "-"


def _document(group: ConsumerGroupDescription, lags: list[PartitionLag], sections: GroupSections) -> dict[str, Any]:
    document: dict[str, Any] = {"group": group.group_id}
    if sections.state:
        document["state"] = {
            "group": group.group_id,
            "coordinator": f"{group.coordinator.host}:{group.coordinator.port} ({group.coordinator.id})",
            "assignor": group.partition_assignor or None,
            "state": group.state.kafka_name,
            "type": group.type.kafka_name,
            "members": len(group.members),
            "group_epoch": group.group_epoch,
            "assignment_epoch": group.assignment_epoch,
        }
    if sections.members:
        document["members"] = [_member(group.group_id, member) for member in group.members]
    if sections.offsets:
        document["offsets"] = [_lag(group.group_id, lag) for lag in lags]
    return document


def _member(group_id: str, member: MemberDescription) -> dict[str, Any]:
    owned = member.assignment.topic_partitions
    target = member.target_assignment
    return {
        "group": group_id,
        "consumer_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "host": member.host,
        "client_id": member.client_id,
        "partitions": len(owned),
        "assignment": assignment_text(owned),
        "target_assignment": None if target is None else assignment_text(target.topic_partitions),
    }


def _lag(group_id: str, lag: PartitionLag) -> dict[str, Any]:
    member = lag.member
    document: dict[str, Any] = {
        "group": group_id,
        "topic": lag.topic,
        "partition": lag.partition,
        "current_offset": lag.committed_offset,
        "log_end_offset": lag.log_end_offset,
        "lag": lag.lag,
        "leader_epoch": lag.leader_epoch,
        "metadata": lag.metadata,
        "consumer_id": None if member is None else member.member_id,
        "host": None if member is None else member.host,
        "client_id": None if member is None else member.client_id,
    }
    return document if lag.error is None else document | {"error": error_document(lag.error)}


def _print(group: ConsumerGroupDescription, document: dict[str, Any]) -> None:
    sections: list[tuple[list[dict[str, Any]], tuple[str, ...]]] = []
    if "state" in document:
        sections.append(([document["state"]], _STATE_COLUMNS))
    if document.get("members"):
        sections.append((document["members"], _member_columns(document["members"])))
    if document.get("offsets"):
        further = () if document.get("members") else _OF_MEMBER
        sections.append((document["offsets"], (*_OFFSET_COLUMNS, *further)))
    for index, (records, columns) in enumerate(sections):
        if index:
            typer.echo()
        print_records(records, columns)
    if not group.members:
        typer.echo(f"group {group.group_id} has no active members", err=True)
    elif group.state in _REBALANCING:
        typer.echo(f"group {group.group_id} is rebalancing", err=True)
    for lag in document.get("offsets", ()):
        if "error" in lag:
            print_warning(f"{lag['topic']}-{lag['partition']}: {lag['error']['message']}")


def _member_columns(members: list[dict[str, Any]]) -> tuple[str, ...]:
    columns = ["group", "consumer_id", "host", "client_id", "partitions", "assignment"]
    if any(member["group_instance_id"] for member in members):
        columns.insert(2, "group_instance_id")
    if any(member["target_assignment"] not in (None, member["assignment"]) for member in members):
        columns.append("target_assignment")
    return tuple(columns)
