"""Data loss: offsets that a query had to read and that no longer exist, as errors or as counted losses.

With ``failOnDataLoss=true`` the first loss is an error. With ``false`` the query skips what is lost, and each loss is
logged once with its range. The planner's losses are also in `LossLedger`, which has a bound for those of tasks: Spark
brings only rows from tasks to the driver, so their exact number is in the logs of executors alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import TopicId, topic_id_text
from tidelog_spark.source.offsets import Offsets, PartitionKey
from tidelog_spark.source.stream_offsets import Logs

log = logging.getLogger(__name__)
_MOST_NAMED = 10


class DataLossError(TidelogError):
    """Offsets that a query had to read no longer exist. A retry does not help, whatever the code is."""


class LossReason(Enum):
    """The cause of a loss, and its error."""

    RETENTION = ErrorCode.OFFSET_OUT_OF_RANGE
    """The log starts behind the offsets: retention or a request has deleted records."""
    TRUNCATION = ErrorCode._LOG_TRUNCATION
    """The log ends before the offsets, for example after an unclean election."""
    DELETION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    """The topic is deleted."""
    RECREATION = ErrorCode.INCONSISTENT_TOPIC_ID
    """The topic was deleted, and another topic has its name."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The lost offsets [start_offset, end_offset) of one partition of the topic ``topic_id``.

    After a deletion, ``end_offset`` is the last known end of the log, so there may be more. After a truncation the
    offsets are those that the log had and has no more; the query has read them. ``detail`` is for messages.
    """

    reason: LossReason
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    topic_id: TopicId
    detail: str = ""

    @property
    def size(self) -> int:
        """The number of offsets that are known to be lost; there may be fewer records."""
        return 0 if self.reason is LossReason.TRUNCATION else self.end_offset - self.start_offset

    def __str__(self) -> str:
        offsets = f"offsets [{self.start_offset}, {self.end_offset}) of {self.topic}-{self.partition}"
        return f"{offsets}: {self.detail}"


def retention_loss(key: PartitionKey, topic_id: TopicId, start: int, end: int, log_range: tuple[int, int]) -> Loss:
    """Return the loss of offsets before the start of the log, whose offsets are ``log_range``."""
    detail = f"offset {start} is gone, the partition has [{log_range[0]}, {log_range[1]})"
    return Loss(LossReason.RETENTION, *key, start, end, topic_id, detail)


def topic_loss(key: PartitionKey, topic_id: TopicId, start: int, end: int, new_id: TopicId | None) -> Loss:
    """Return the loss of offsets of a topic that is deleted, or has been replaced by the topic ``new_id``."""
    if new_id is None:
        detail = f'topic "{key[0]}" with id {_text(topic_id)} is deleted'
        return Loss(LossReason.DELETION, *key, start, end, topic_id, detail)
    change = f"its id was {_text(topic_id)} and is {_text(new_id)}"
    detail = f'topic "{key[0]}" was deleted and created again: {change}'
    return Loss(LossReason.RECREATION, *key, start, end, topic_id, detail)


def losses_outside(option: str, offsets: Offsets, logs: Logs) -> list[Loss]:
    """Return the losses of the offsets of an option that the logs do not have, or do not have yet."""
    found: list[Loss] = []
    for key, offset in offsets.items():
        earliest, latest = logs.earliest[key], logs.latest[key]
        detail = f"{option} of {key[0]}-{key[1]} is {offset}, the partition has [{earliest}, {latest})"
        if offset < earliest:
            found.append(Loss(LossReason.RETENTION, *key, offset, earliest, logs.ids[key[0]], detail))
        elif offset > latest:
            found.append(Loss(LossReason.TRUNCATION, *key, latest, offset, logs.ids[key[0]], detail))
    return found


def report_losses(losses: Iterable[Loss], fail_on_data_loss: bool) -> None:
    """Raise an error for the first loss, or log all of them with their number of offsets.

    Raises:
        DataLossError: there is a loss; the code is that of its reason, the text has advice.
    """
    found = list(losses)
    if not found:
        return
    if fail_on_data_loss:
        raise _error(found)
    named = "; ".join(map(str, found[:_MOST_NAMED]))
    more = f" (and {len(found) - _MOST_NAMED} more)" if len(found) > _MOST_NAMED else ""
    total = sum(loss.size for loss in found)
    log.warning("Data loss: skipped %d offsets: %s%s", total, named, more, extra={"losses": found})


class LossLedger:
    """The losses that the planner of a query has found since its start, each of them once."""

    def __init__(self) -> None:
        self._known: set[tuple[TopicId, PartitionKey, int]] = set()
        self.total = 0
        """The number of lost offsets since the start of the query's process."""
        self.unsure = 0
        """The number of offsets that the logs lost between the plan of a micro-batch and the next planning.

        A task has lost each of them, or has read it before.
        """
        self.last: tuple[Loss, ...] = ()
        """The losses that the last planning found."""

    @property
    def at_most(self) -> int:
        """The most offsets that the query, with its tasks, can have lost up to the last planning."""
        return self.total + self.unsure

    def begin_planning(self) -> None:
        """Forget the losses of the planning before; the total stays."""
        self.last = ()

    def report(self, losses: Iterable[Loss], fail_on_data_loss: bool) -> None:
        """Record and report the losses that are new.

        Raises:
            DataLossError: as `report_losses`, also for losses that are not new.
        """
        found = list(losses)
        if fail_on_data_loss:
            report_losses(found, fail_on_data_loss)
        new = [loss for loss in found if _key(loss) not in self._known]
        self._known.update(map(_key, new))
        self.total += sum(loss.size for loss in new)
        self.last += tuple(new)
        report_losses(new, fail_on_data_loss)


def _key(loss: Loss) -> tuple[TopicId, PartitionKey, int]:
    return loss.topic_id, (loss.topic, loss.partition), loss.start_offset


def _error(losses: list[Loss]) -> DataLossError:
    more = f" (and {len(losses) - 1} more)" if len(losses) > 1 else ""
    return DataLossError(
        losses[0].reason.value,
        f'data loss: {losses[0]}{more}. Set the option failOnDataLoss to "false" to skip and count what is missing',
    )


def _text(topic_id: TopicId) -> str:
    return topic_id_text(topic_id) if topic_id else "unknown"
