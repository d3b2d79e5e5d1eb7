"""Which offsets a reset gives to a group, from what it has committed and where the logs begin and end. Pure.

The rules are those of kafka-consumer-groups.sh (``GroupOffsetsResetter``, KIP-122): what is asked for by number is
moved into the log with a warning, what is asked for by time and lies behind the last record is the log's end.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from tidelog.cluster import TopicPartitionKey
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """To where each log begins."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """To where each log ends."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """To what is committed; to the log's end where nothing is."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """To one offset in all partitions."""

    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """By so many offsets from what is committed, back below 0."""

    count: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """To the first record of a time or later, in ms since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ToGiven:
    """To an offset of each partition, as a file names them."""

    offsets: Mapping[TopicPartitionKey, int]


ResetTarget: TypeAlias = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime | ToGiven


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Where a partition begins and ends, the end exclusive; ``at_time`` is what was found by time, None for nothing."""

    log_start_offset: int
    log_end_offset: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The offsets to commit, in order of partition, and what is not as it was asked for."""

    offsets: dict[TopicPartitionKey, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def plan_reset(
    target: ResetTarget, bounds: Mapping[TopicPartitionKey, LogBounds], committed: Mapping[TopicPartitionKey, int]
) -> ResetPlan:
    """Return the new offsets of the partitions that have ``bounds``; ``committed`` has the group's offsets now.

    Raises:
        TidelogError: _NO_OFFSET: a shift from where nothing is committed.
    """
    plan = ResetPlan()
    for key in sorted(bounds):
        plan.offsets[key] = _new_offset(target, key, bounds[key], committed.get(key), plan.warnings)
    return plan


def _new_offset(
    target: ResetTarget, key: TopicPartitionKey, bounds: LogBounds, committed: int | None, warnings: list[str]
) -> int:
    match target:
        case ToEarliest():
            return bounds.log_start_offset
        case ToLatest():
            return bounds.log_end_offset
        case ToCurrent():
            return bounds.log_end_offset if committed is None else committed
        case ToOffset(offset):
            return _clipped(key, offset, bounds, warnings)
        case ToGiven(offsets):
            return _clipped(key, offsets[key], bounds, warnings)
        case ShiftBy(count):
            if committed is None:
                text = f"the offset of {key[0]}-{key[1]} cannot be shifted: none is committed"
                raise error_for(ErrorCode._NO_OFFSET, text)
            return _clipped(key, committed + count, bounds, warnings)
        case ToTime():
            if bounds.at_time is None:
                warnings.append(
                    f"{key[0]}-{key[1]} has no record of that time or later; using its end, {bounds.log_end_offset}"
                )
                return bounds.log_end_offset
            return bounds.at_time
    assert_never(target)


def _clipped(key: TopicPartitionKey, offset: int, bounds: LogBounds, warnings: list[str]) -> int:
    clipped = max(min(offset, bounds.log_end_offset), bounds.log_start_offset)
    if clipped != offset:
        where = "above the end" if offset > clipped else "below the start"
        warnings.append(f"offset {offset} is {where} of {key[0]}-{key[1]}; using {clipped}")
    return clipped


def to_csv(offsets: Mapping[str, Mapping[TopicPartitionKey, int]]) -> str:
    """Return offsets by group as ``--from-file`` reads them: ``topic,partition,offset``; ``group,...`` with several."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group, of_group in sorted(offsets.items()):
        prefix = [group] if len(offsets) > 1 else []
        writer.writerows([*prefix, topic, partition, offset] for (topic, partition), offset in sorted(of_group.items()))
    return text.getvalue()


def parse_csv(text: str, groups: Iterable[str]) -> dict[str, dict[TopicPartitionKey, int]]:
    """Return the offsets of a file by group; lines without a group are of the one that is asked for.

    Raises:
        TidelogError: _INVALID_ARG: a line is no such line, or a partition is named twice.
    """
    asked = list(groups)
    found: dict[str, dict[TopicPartitionKey, int]] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        if len(row) == 3 and len(asked) == 1:
            row = [asked[0], *row]
        if len(row) != 4 or not (row[2].isdecimal() and row[3].isdecimal()):
            form = "topic,partition,offset" if len(asked) == 1 else "group,topic,partition,offset"
            raise _invalid(f'line {number} is not {form}: "{",".join(row)}"')
        group, topic, partition, offset = row[0], row[1], int(row[2]), int(row[3])
        of_group = found.setdefault(group, {})
        if (topic, partition) in of_group:
            raise _invalid(f"line {number} names {topic}-{partition} again")
        of_group[topic, partition] = offset
    return found


def _invalid(text: str) -> TidelogError:
    return error_for(ErrorCode._INVALID_ARG, text)
