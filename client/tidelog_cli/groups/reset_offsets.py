"""The steps of ``tidelog group reset-offsets``: read the offsets of logs and groups, plan, and commit the plan."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidelog.admin import ConsumerGroupState, ConsumerGroupTopicPartitions, OffsetSpec
from tidelog.cluster import TopicPartitionKey
from tidelog.message import TopicPartition
from tidelog_cli.groups import reset_plan
from tidelog_cli.output import printing
from tidelog_cli.output.times import parse_duration_ms, parse_time
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

if TYPE_CHECKING:
    from tidelog.admin import AdminClient
    from tidelog_cli.options.connection import Session

_SCOPE = re.compile(r"(?P<topic>[^:]+)(?::(?P<partitions>\d+(?:,\d+)*))?", re.ASCII)
_COLUMNS = ("group", "topic", "partition", "current_offset", "new_offset")
_INACTIVE = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)


@dataclass(frozen=True, slots=True)
class Reset:
    """A request to reset offsets: ``topics`` as ``flights:0,1``, None for all with a committed offset."""

    target: reset_plan.ResetTarget
    topics: Sequence[str] | None
    from_file: Path | None
    execute: bool
    export: bool
    yes: bool


def target_of(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    from_file: Path | None,
) -> reset_plan.ResetTarget:
    """Return the target from the options, of which exactly one must be given; offsets of a file follow later, by group.

    Raises:
        click.UsageError: none or several are given; one cannot be parsed.
    """
    given: dict[str, reset_plan.ResetTarget] = {}
    if to_earliest:
        given["--to-earliest"] = reset_plan.ToEarliest()
    if to_latest:
        given["--to-latest"] = reset_plan.ToLatest()
    if to_current:
        given["--to-current"] = reset_plan.ToCurrent()
    if to_offset is not None:
        given["--to-offset"] = reset_plan.ToOffset(to_offset)
    if shift_by is not None:
        given["--shift-by"] = reset_plan.ShiftBy(shift_by)
    try:
        if to_datetime is not None:
            given["--to-datetime"] = reset_plan.ToTime(parse_time(to_datetime))
        if by_duration is not None:
            given["--by-duration"] = reset_plan.ToTime(int(time.time() * 1000) - parse_duration_ms(by_duration))
    except ValueError as error:
        raise printing.UsageError(str(error)) from error
    if from_file is not None:
        given["--from-file"] = reset_plan.ToGiven({})
    if len(given) != 1:
        which = ", ".join(given) or "none"
        raise printing.UsageError(
            f"Pass exactly one of --to-..., --shift-by, --by-duration and --from-file, not {which}."
        )
    return next(iter(given.values()))


def partitions_of(admin: AdminClient, topics: Iterable[str], timeout_s: float) -> list[TopicPartition]:
    """Return the partitions that ``flights`` and ``flights:0,1`` name, in order.

    Raises:
        click.UsageError: a text has another form.
        TidelogError: there is no such topic or partition.
    """
    known = admin.list_topics(timeout=timeout_s).topics
    found: set[TopicPartition] = set()
    for text in topics:
        match = _SCOPE.fullmatch(text)
        if match is None:
            raise typer.BadParameter(f'"{text}" is not TOPIC or TOPIC:0,1.', param_hint="--topic")
        topic, wanted = match["topic"], match["partitions"]
        if topic not in known:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'there is no topic "{topic}"')
        indexes = [int(index) for index in wanted.split(",")] if wanted else list(known[topic].partitions)
        missing = sorted(set(indexes) - known[topic].partitions.keys())
        if missing:
            text = f'topic "{topic}" has no partitions {missing}, it has {len(known[topic].partitions)}'
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        found.update(TopicPartition(topic, index) for index in indexes)
    return sorted(found)


def reset_offsets(session: Session, admin: AdminClient, groups: list[str], wanted: Reset) -> None:
    """Plan for each group, show the plan and, with ``execute``, commit it. If one group fails, nothing is committed.

    Raises:
        TidelogError: NON_EMPTY_GROUP, a group is active; a partition does not exist or has no leader; the file is
            invalid or lacks a group; a commit was refused.
    """
    _refuse_active(admin, groups, session.timeout_s)
    committed = {group: _committed(admin, group, session.timeout_s) for group in groups}
    given = _given(wanted, groups)
    plans: dict[str, reset_plan.ResetPlan] = {}
    for group in groups:
        target = reset_plan.ToGiven(given[group]) if wanted.from_file is not None else wanted.target
        keys = _scope(admin, wanted, committed[group], given.get(group, {}), session.timeout_s)
        bounds = _bounds(admin, keys, target, session.timeout_s)
        plans[group] = reset_plan.plan_reset(target, bounds, committed[group])
        for warning in plans[group].warnings:
            printing.print_warning(warning)
    records = _records(plans, committed)
    if wanted.execute and not wanted.yes:
        printing.print_records(records, _COLUMNS, err=True)
        printing.confirm(f"set these offsets of {', '.join(groups)}", yes=False)
    errors = _commit(admin, plans, session.timeout_s) if wanted.execute else {}
    if wanted.export:
        typer.echo(reset_plan.to_csv({group: plan.offsets for group, plan in plans.items()}), nl=False)
    else:
        _show(session, records, errors, wanted)
    printing.fail(errors.values())


def _refuse_active(admin: AdminClient, groups: list[str], timeout_s: float) -> None:
    found, errors = printing.settle(admin.describe_consumer_groups(groups, request_timeout=timeout_s) if groups else {})
    # A group that does not exist yet gets its first offsets this way.
    printing.fail(error for error in errors.values() if error.code is not ErrorCode.GROUP_ID_NOT_FOUND)
    for group_id, group in found.items():
        if group.state not in _INACTIVE:
            text = f"offsets are only set while the group is inactive, and {group_id} is {group.state.kafka_name}"
            raise error_for(ErrorCode.NON_EMPTY_GROUP, text)


def _committed(admin: AdminClient, group: str, timeout_s: float) -> dict[TopicPartitionKey, int]:
    futures = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=timeout_s)
    try:
        found = futures[group].result().topic_partitions or ()
    except TidelogError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return {}
    printing.fail(
        error_for(p.error.error_code(), f"{p.topic}-{p.partition}: {p.error.str()}") for p in found if p.error
    )
    return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}


def _given(wanted: Reset, groups: list[str]) -> dict[str, dict[TopicPartitionKey, int]]:
    if wanted.from_file is None:
        return {}
    given = reset_plan.parse_csv(wanted.from_file.read_text(encoding="utf-8"), groups)
    missing = [group for group in groups if group not in given]
    if missing:
        raise error_for(ErrorCode._INVALID_ARG, f"{wanted.from_file} has no offsets of {', '.join(missing)}")
    return given


def _scope(
    admin: AdminClient,
    wanted: Reset,
    committed: Mapping[TopicPartitionKey, int],
    given: Mapping[TopicPartitionKey, int],
    timeout_s: float,
) -> list[TopicPartition]:
    if wanted.topics is not None:
        return partitions_of(admin, wanted.topics, timeout_s)
    return [TopicPartition(*key) for key in sorted(committed if wanted.from_file is None else given)]


def _bounds(
    admin: AdminClient, keys: list[TopicPartition], target: reset_plan.ResetTarget, timeout_s: float
) -> dict[TopicPartitionKey, reset_plan.LogBounds]:
    def find(spec: OffsetSpec) -> dict[TopicPartition, int]:
        found, errors = printing.settle(admin.list_offsets(dict.fromkeys(keys, spec), request_timeout=timeout_s))
        printing.fail(error_for(e.code, f"{key.topic}-{key.partition}: {e.message}") for key, e in errors.items())
        return {key: info.offset for key, info in found.items()}

    if not keys:
        return {}
    starts, ends = find(OffsetSpec.earliest()), find(OffsetSpec.latest())
    at_time = (
        find(OffsetSpec.for_timestamp(max(target.timestamp_ms, 0))) if isinstance(target, reset_plan.ToTime) else {}
    )
    return {
        (key.topic, key.partition): reset_plan.LogBounds(
            starts[key], ends[key], at if (at := at_time.get(key, -1)) >= 0 else None
        )
        for key in keys
    }


def _commit(admin: AdminClient, plans: Mapping[str, reset_plan.ResetPlan], timeout_s: float) -> dict[str, TidelogError]:
    requests = [
        ConsumerGroupTopicPartitions(group, [TopicPartition(*key, offset) for key, offset in plan.offsets.items()])
        for group, plan in plans.items()
        if plan.offsets
    ]
    futures = admin.alter_consumer_group_offsets(requests, request_timeout=timeout_s) if requests else {}
    answers, errors = printing.settle(futures)
    for group, answer in answers.items():
        refused = [
            error_for(p.error.error_code(), f"{p.topic}-{p.partition}: {p.error.str()}")
            for p in answer.topic_partitions or ()
            if p.error is not None
        ]
        if refused:
            text = "; ".join(error.message for error in refused)
            errors[group] = error_for(refused[0].code, f"group {group}: {text}")
    return errors


def _records(
    plans: Mapping[str, reset_plan.ResetPlan], committed: Mapping[str, Mapping[TopicPartitionKey, int]]
) -> list[dict[str, Any]]:
    return [
        {
            "group": group,
            "topic": topic,
            "partition": partition,
            "current_offset": committed[group].get((topic, partition)),
            "new_offset": offset,
        }
        for group, plan in plans.items()
        for (topic, partition), offset in plan.offsets.items()
    ]


def _show(session: Session, records: list[dict[str, Any]], errors: Mapping[str, TidelogError], wanted: Reset) -> None:
    if session.as_json:
        failures = [{"group": group, "error": printing.error_document(error)} for group, error in errors.items()]
        printing.print_json({"executed": wanted.execute and not errors, "partitions": records, "errors": failures})
        return
    printing.print_records(records, _COLUMNS)
    if not wanted.execute:
        typer.echo("Nothing was changed. Pass --execute to commit these offsets.", err=True)
