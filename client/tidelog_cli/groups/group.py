"""``tidelog group``: list, describe, reset-offsets, delete, delete-offsets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tidelog.admin import AdminClient, ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType
from tidelog_cli.groups.describe import GroupSections, describe_groups
from tidelog_cli.groups.reset_offsets import Reset, partitions_of, reset_offsets, target_of
from tidelog_cli.options.completion import complete_group
from tidelog_cli.options.connection import Session, Yes, connected
from tidelog_cli.output import printing
from tidelog_foundation.errors import error_for

app = printing.command_group("List, describe and delete consumer groups, and reset their offsets.")

GroupArgument = typer.Argument(metavar="GROUP", help="The ids of the groups.", autocompletion=complete_group)
Group = Annotated[str, typer.Argument(metavar="GROUP", help="The id of the group.", autocompletion=complete_group)]
Groups = Annotated[list[str], GroupArgument]
MaybeGroups = Annotated[list[str] | None, GroupArgument]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="All groups of the cluster.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", metavar="TOPIC[:0,1]", help="This topic, or these partitions of it. May be repeated."
    ),
]


@app.command("list")
@connected
def list_groups(
    session: Session,
    states: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="STATE,...",
            help="Only groups in these states: Stable, Empty, PreparingRebalance, Dead and so on.",
        ),
    ] = None,
    types: Annotated[
        str | None, typer.Option("--type", metavar="TYPE,...", help="Only groups of these types: classic, consumer.")
    ] = None,
) -> None:
    """List the groups with their states.

    Example: tidelog group list --state Stable,Empty
    """
    wanted_states = [_state(name) for name in _names(states)]
    wanted_types = [_type(name) for name in _names(types)]
    with session.admin() as admin:
        found = admin.list_consumer_groups(
            states=wanted_states, types=wanted_types, request_timeout=session.timeout_s
        ).result()
    records = [
        {
            "group": g.group_id,
            "state": g.state.kafka_name,
            "type": g.type.kafka_name,
            "simple": g.is_simple_consumer_group,
        }
        for g in found.valid
    ]
    session.show("groups", records, ("group", "state", "type"))
    printing.fail(found.errors)


@app.command()
@connected
def describe(
    session: Session,
    groups: MaybeGroups = None,
    all_groups: AllGroups = False,
    members: Annotated[bool, typer.Option("--members", help="Show the members and their partitions.")] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Show the committed offsets, the log end offsets and the lag.")
    ] = False,
    state: Annotated[bool, typer.Option("--state", help="Show the state, the coordinator and the assignor.")] = False,
) -> None:
    """Show the state, members and lag of groups; everything without an option.

    \b
    Examples:
      tidelog group describe audit
      tidelog group describe --all-groups --offsets
    """
    with session.admin() as admin:
        wanted = _groups(admin, groups, all_groups, session.timeout_s)
        describe_groups(session, admin, wanted, GroupSections.of(state=state, members=members, offsets=offsets))


_AllTopics = Annotated[
    bool, typer.Option("--all-topics", help="All partitions for which the group has committed offsets.")
]
_ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="Reset to the log start offsets.")]
_ToLatest = Annotated[bool, typer.Option("--to-latest", help="Reset to the log end offsets.")]
_ToCurrent = Annotated[
    bool, typer.Option("--to-current", help="Keep the committed offsets; without one, the log end offset.")
]
_ToOffset = Annotated[int | None, typer.Option("--to-offset", min=0, metavar="OFFSET", help="Reset to this offset.")]
_ShiftBy = Annotated[
    int | None, typer.Option("--shift-by", metavar="N", help="Move the committed offsets forward by N, or back by -N.")
]
_ToDatetime = Annotated[
    str | None,
    typer.Option(
        "--to-datetime",
        metavar="TIME",
        help="Reset to the first record of this time or later, such as 2026-01-17T12:00:00.000 (UTC).",
    ),
]
_ByDuration = Annotated[
    str | None,
    typer.Option(
        "--by-duration", metavar="TIME", help="Reset to the first record of this time ago or later: PT1H30M, 90m, 7d."
    ),
]
_FromFile = Annotated[
    Path | None,
    typer.Option(
        "--from-file",
        exists=True,
        dir_okay=False,
        metavar="FILE",
        help="Reset to the offsets in a file that --export wrote.",
    ),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the new offsets only. The default.")]
_Execute = Annotated[bool, typer.Option("--execute", help="Commit the new offsets.")]
_Export = Annotated[bool, typer.Option("--export", help="Print the new offsets as CSV: topic,partition,offset.")]


@app.command("reset-offsets")
@connected
def reset(
    session: Session,
    groups: MaybeGroups = None,
    all_groups: AllGroups = False,
    topics: Topics = None,
    all_topics: _AllTopics = False,
    to_earliest: _ToEarliest = False,
    to_latest: _ToLatest = False,
    to_current: _ToCurrent = False,
    to_offset: _ToOffset = None,
    shift_by: _ShiftBy = None,
    to_datetime: _ToDatetime = None,
    by_duration: _ByDuration = None,
    from_file: _FromFile = None,
    dry_run: _DryRun = False,
    execute: _Execute = False,
    export: _Export = False,
    yes: Yes = False,
) -> None:
    """Reset the committed offsets of groups without members.

    Offsets outside the log become its start or end. Without --execute nothing changes.

    \b
    Examples:
      tidelog group reset-offsets audit --to-earliest --topic flights
      tidelog group reset-offsets audit --by-duration 1h --all-topics --execute -y
      tidelog group reset-offsets audit --to-current --all-topics --export > a.csv
    """
    target = target_of(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        shift_by=shift_by,
        to_datetime=to_datetime,
        by_duration=by_duration,
        from_file=from_file,
    )
    exclusive = (("--dry-run", dry_run, "--execute", execute), ("--export", export, "--json", session.as_json))
    for option, is_given, other, is_other_given in exclusive:
        if is_given and is_other_given:
            raise printing.UsageError(f"{option} and {other} exclude each other.")
    if (bool(topics) + all_topics) != (0 if from_file else 1):
        raise printing.UsageError("Pass one of --topic, --all-topics and --from-file, which names partitions itself.")
    if execute:
        printing.require_answer("set the offsets", yes)
    with session.admin() as admin:
        wanted = _groups(admin, groups, all_groups, session.timeout_s)
        reset_offsets(session, admin, wanted, Reset(target, topics, from_file, execute=execute, export=export, yes=yes))


@app.command()
@connected
def delete(session: Session, groups: Groups, yes: Yes = False) -> None:
    """Delete groups without members, with their committed offsets.

    Example: tidelog group delete audit --yes
    """
    printing.confirm(f"delete {printing.counted_names('group', groups)} and all committed offsets", yes)
    with session.admin() as admin:
        deleted, errors = printing.settle(admin.delete_consumer_groups(groups, request_timeout=session.timeout_s))
    documents: list[dict[str, Any]] = [{"group": group, "deleted": True} for group in deleted]
    documents += [
        {"group": group, "deleted": False, "error": printing.error_document(e)} for group, e in errors.items()
    ]
    session.done({"groups": documents}, *(f"deleted {group}" for group in deleted))
    printing.fail(errors.values())


@app.command("delete-offsets")
@connected
def delete_offsets(session: Session, group: Group, topics: Topics = None, yes: Yes = False) -> None:
    """Delete a group's committed offsets for topics that no member reads.

    Example: tidelog group delete-offsets audit --topic flights:0,1 --yes
    """
    if not topics:
        raise printing.UsageError("Pass --topic for each topic whose offsets to delete.")
    printing.confirm(f"delete the offsets of group {group} for {', '.join(topics)}", yes)
    with session.admin() as admin:
        request = ConsumerGroupTopicPartitions(group, partitions_of(admin, topics, session.timeout_s))
        futures = admin.delete_consumer_group_offsets([request], request_timeout=session.timeout_s)
        answer = futures[group].result()
    partitions = sorted(answer.topic_partitions or ())
    refused = [
        error_for(p.error.error_code(), f"{p.topic}-{p.partition}: {p.error.str()}") for p in partitions if p.error
    ]
    records = [{"topic": p.topic, "partition": p.partition, "deleted": p.error is None} for p in partitions]
    session.show("partitions", records, ("topic", "partition", "deleted"))
    printing.fail(refused)


def _groups(admin: AdminClient, groups: list[str] | None, all_groups: bool, timeout_s: float) -> list[str]:
    if bool(groups) is all_groups:
        raise printing.UsageError("Pass either the names of groups or --all-groups.")
    if groups:
        return list(dict.fromkeys(groups))
    found = admin.list_consumer_groups(request_timeout=timeout_s).result()
    printing.fail(found.errors)
    return [group.group_id for group in found.valid]


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",")]


def _state(name: str) -> ConsumerGroupState:
    state = ConsumerGroupState.parse(name)
    if state is ConsumerGroupState.UNKNOWN:
        known = ", ".join(s.kafka_name for s in ConsumerGroupState if s is not ConsumerGroupState.UNKNOWN)
        raise typer.BadParameter(f'"{name}" is not a state of groups. The states are {known}.', param_hint="--state")
    return state


def _type(name: str) -> ConsumerGroupType:
    kind = ConsumerGroupType.parse(name)
    if kind is ConsumerGroupType.UNKNOWN:
        raise typer.BadParameter(
            f'"{name}" is not a type of groups. The types are classic and consumer.', param_hint="--type"
        )
    return kind
