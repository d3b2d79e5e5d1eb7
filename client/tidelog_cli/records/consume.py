"""``tidelog consume``: prints records as lines on the standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from tidelog.cluster.client import unknown_partition
from tidelog.consumer import Consumer
from tidelog.consumer.core.subscription import Subscription
from tidelog.message import OFFSET_BEGINNING, OFFSET_END, Message, TopicPartition
from tidelog_cli.options.completion import complete_group, complete_topic
from tidelog_cli.options.connection import Session, connected
from tidelog_cli.options.durations import seconds
from tidelog_cli.output.printing import UsageError, print_warning
from tidelog_cli.output.times import parse_duration_ms, parse_time
from tidelog_cli.records.message_format import ToLine, message_formatter, parts_formatter
from tidelog_cli.topics.describe import internal_topics
from tidelog_foundation.errors import ErrorCode, KafkaError, error_for

_BATCH = 500
_ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
_WAIT_S = 0.5
_NOTE_AFTER_S = 1.0
_FIRST_ANSWERS_S = 5.0
"""For this time --idle-timeout waits for each partition's first answer: a slow start is not the end of the records."""
_PASSING = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)  # type: ignore[attr-defined]


_Topics = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC",
        help="The topics to read. A name that begins with ^ is a regular expression, which topics' names begin with.",
        autocompletion=complete_topic,
    ),
]
_Regex = Annotated[
    bool, typer.Option("--regex", help="Take each TOPIC as a regular expression for whole names, as orders[.].*")
]
_FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", help="Start with the first record. Default: the next new record.")
]
_Offset = Annotated[
    int | None,
    typer.Option(
        "--offset",
        "-o",
        metavar="OFFSET",
        help="Start with this offset in each partition; -N means the last N records.",
    ),
]
_FromTime = Annotated[
    str | None,
    typer.Option(
        "--from-time",
        "--timestamp",
        metavar="TIME",
        help="Start with the first record of this time or later: 2026-01-17T12:00:00, ms since 1970, or "
        "-1h for an hour ago.",
    ),
]
_Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        help="Share the partitions with the members of this group, and commit what was printed; start where the "
        "group is.",
        autocompletion=complete_group,
    ),
]
_Partitions = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", min=0, metavar="N", help="Read only this partition. May be repeated. Default: all."
    ),
]
_MaxMessages = Annotated[
    int | None, typer.Option("--max-messages", "-n", min=1, metavar="N", help="Exit after this number of records.")
]
_ExitAtEnd = Annotated[bool, typer.Option("--exit-at-end", "-e", help="Exit at the end of all partitions.")]
_IdleTimeout = Annotated[
    float | None,
    typer.Option(
        "--idle-timeout", parser=seconds(), metavar="SECONDS", help="Exit when no record arrives for this time."
    ),
]
_IsolationLevel = Annotated[
    str,
    typer.Option(
        "--isolation-level",
        metavar="LEVEL",
        help="read_committed prints records of committed transactions only, up to the first open transaction; "
        "read_uncommitted prints all.",
    ),
]
_Template = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        help="json, or text in which %t is the topic, %p the partition, %o the offset, %e the leader epoch, %k the "
        "key, %v the value, %K and %V how many bytes they have, %T the time in ms, %d the time as text, %h the "
        "headers, %H how many there are, %% a %, \\n, \\t and \\xhh as ever.",
    ),
]
_PrintKey = Annotated[bool, typer.Option("--print-key", help="Print the key before the value.")]
_PrintHeaders = Annotated[bool, typer.Option("--print-headers", help="Print the headers before key and value.")]
_PrintOffset = Annotated[bool, typer.Option("--print-offset", help="Print the offset before the record.")]
_PrintPartition = Annotated[bool, typer.Option("--print-partition", help="Print the partition before the record.")]
_PrintTimestamp = Annotated[bool, typer.Option("--print-timestamp", help="Print the timestamp before the record.")]
_Separator = Annotated[
    str, typer.Option("--separator", metavar="TEXT", help="The text between printed fields. Default: a tab.")
]


@connected
def consume(
    session: Session,
    topics: _Topics,
    regex: _Regex = False,
    from_beginning: _FromBeginning = False,
    offset: _Offset = None,
    from_time: _FromTime = None,
    group: _Group = None,
    partitions: _Partitions = None,
    max_messages: _MaxMessages = None,
    exit_at_end: _ExitAtEnd = False,
    idle_timeout: _IdleTimeout = None,
    isolation_level: _IsolationLevel = "read_committed",
    template: _Template = "%v",
    print_key: _PrintKey = False,
    print_headers: _PrintHeaders = False,
    print_offset: _PrintOffset = False,
    print_partition: _PrintPartition = False,
    print_timestamp: _PrintTimestamp = False,
    separator: _Separator = "\t",
) -> None:
    """Print records as they arrive, one per line, until Ctrl-C; with --json, one JSON object per line.

    \b
    Examples:
      tidelog consume flights --from-beginning --exit-at-end --format json
      tidelog consume flights -p 3 --offset 100 -n 10 --format '%p:%o %k %v'
      tidelog consume flights --from-time -15m --print-key --print-headers
      tidelog consume flights --group audit --from-beginning
      tidelog consume orders payments --format '%t %v'
      tidelog consume 'orders[.].*' --regex --from-beginning -e
    """
    if group is not None and (partitions or offset is not None or from_time):
        raise UsageError(
            "--group cannot be combined with --partition, --offset or --from-time: the group's committed offsets say "
            "where to start. Only --from-beginning can be, for a group without committed offsets."
        )
    _one_at_most({"--from-beginning": from_beginning, "--offset": offset is not None, "--from-time": bool(from_time)})
    asked = {
        "key": print_key,
        "headers": print_headers,
        "offset": print_offset,
        "partition": print_partition,
        "timestamp": print_timestamp,
    }
    to_line = _formatter(session, template, [name for name, is_asked in asked.items() if is_asked], separator)
    started_at_ms = None if from_time is None else _since(from_time)
    wanted = list(dict.fromkeys(f"^(?:{topic})$" if regex else topic for topic in topics))
    if partitions and (len(wanted) > 1 or wanted[0].startswith("^")):
        raise UsageError("--partition can be used with the name of one topic only.")
    says_ends = exit_at_end or idle_timeout is not None
    config = _config(wanted, group, from_beginning=from_beginning, says_ends=says_ends)
    config["isolation.level"] = _checked_isolation(isolation_level)
    with session.consumer(config) as consumer:
        copy = _Copy(consumer, to_line, max_messages, idle_timeout, exit_at_end=exit_at_end, stores=group is not None)
        names = _names(consumer, wanted, session.timeout_s)
        keys = [key for name in names for key in _partitions(consumer, name, partitions, session.timeout_s)]
        if group is not None:
            consumer.subscribe(wanted)
            copy.run(_note(group, from_beginning))
            return
        if started_at_ms is not None:
            keys = _at_time(consumer, keys, started_at_ms, session.timeout_s)
        elif offset is not None and offset < 0:
            keys = list(_last(consumer, keys, -offset, session.timeout_s))
        else:
            start = offset if offset is not None else OFFSET_BEGINNING if from_beginning else OFFSET_END
            keys = [TopicPartition(key.topic, key.partition, start) for key in keys]
        consumer.assign(keys)
        is_at_end = not (from_beginning or offset is not None or from_time or exit_at_end)
        copy.run(_note(None, not is_at_end))


def _config(wanted: list[str], group: str | None, *, from_beginning: bool, says_ends: bool) -> dict[str, Any]:
    """Return the settings of the consumer for these topics."""
    config: dict[str, Any] = {"auto.offset.reset": "error", "enable.partition.eof": says_ends}
    if group is not None:
        reset = "earliest" if from_beginning else "latest"
        config |= {"group.id": group, "auto.offset.reset": reset, "enable.auto.offset.store": False}
    if any(topic.startswith("^") for topic in wanted):
        config["topic.blacklist"] = ",".join(f"^{name}$" for name in internal_topics())
    return config


def _checked_isolation(level: str) -> str:
    if level not in _ISOLATION_LEVELS:
        raise typer.BadParameter(f"{level} is not {' or '.join(_ISOLATION_LEVELS)}", param_hint="--isolation-level")
    return level


def _one_at_most(given: dict[str, bool]) -> None:
    chosen = [option for option, is_given in given.items() if is_given]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} exclude each other.")


def _formatter(session: Session, template: str, shown: list[str], separator: str) -> ToLine:
    if shown and (session.as_json or template != "%v"):
        raise UsageError(
            f"--print-{shown[0]} cannot be combined with --json or --format: the format names what is printed."
        )
    if shown:
        return parts_formatter(shown, separator)
    try:
        return message_formatter("json" if session.as_json else template)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from error


def _since(text: str) -> int:
    try:
        if text.startswith("-"):
            return int(time.time() * 1000) - parse_duration_ms(text[1:])
        return parse_time(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--from-time") from error


def _names(consumer: Consumer, wanted: list[str], timeout_s: float) -> list[str]:
    """Return the named topics, and those that match patterns except the internal ones.

    Raises:
        TidelogError: UNKNOWN_TOPIC_OR_PARTITION, no topic matches; _INVALID_ARG, a pattern is invalid.
    """
    subscription = Subscription(wanted)
    if not subscription.patterns:
        return wanted
    existing = set(consumer.list_topics(timeout=timeout_s).topics) - {*internal_topics()}
    found = sorted(subscription.resolve(existing))
    if not found:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic matches {' or '.join(subscription.patterns)}")
    return found


def _note(group: str | None, is_from_beginning: bool) -> str | None:
    """Return the note to print when no record arrives for a while; None if none is needed."""
    if is_from_beginning:
        return None
    who = "the consumer" if group is None else f"group {group} has no committed offsets, so it"
    return f"waiting for new records: {who} starts at the end; --from-beginning starts with the first record"


def _partitions(consumer: Consumer, topic: str, wanted: list[int] | None, timeout: float) -> list[TopicPartition]:
    """Return the partitions of a topic, or only the wanted ones."""
    known = consumer.list_topics(topic, timeout=timeout).topics[topic]
    if known.error is not None:
        raise error_for(known.error.error_code(), known.error.str())
    for index in wanted or ():
        if index not in known.partitions:
            raise unknown_partition(topic, index, len(known.partitions))
    return [TopicPartition(topic, index) for index in sorted((wanted and set(wanted)) or known.partitions)]


def _at_time(
    consumer: Consumer, keys: list[TopicPartition], timestamp_ms: int, timeout_s: float
) -> list[TopicPartition]:
    wanted = [TopicPartition(key.topic, key.partition, timestamp_ms) for key in keys]
    return consumer.offsets_for_times(wanted, timeout_s)


def _last(consumer: Consumer, keys: list[TopicPartition], count: int, timeout_s: float) -> Iterator[TopicPartition]:
    for key in keys:
        low, high = consumer.get_watermark_offsets(key, timeout_s)
        yield TopicPartition(key.topic, key.partition, max(low, high - count))


class _Copy:
    """Copies a consumer's records to the standard output, up to a number of records or an idle time.

    With ``stores`` it stores the offsets of printed records, and of no others, for the next commit.
    """

    def __init__(
        self,
        consumer: Consumer,
        to_line: ToLine,
        limit: int | None,
        idle_s: float | None,
        *,
        exit_at_end: bool,
        stores: bool,
    ) -> None:
        self._consumer = consumer
        self._to_line = to_line
        self._limit = limit
        self._idle_s = idle_s
        self._exit_at_end = exit_at_end
        self._stores = stores
        self._ended: set[TopicPartition] = set()
        self._answered: set[TopicPartition] = set()
        self._next: dict[TopicPartition, int] = {}
        self._written = 0

    def run(self, note: str | None = None) -> None:
        """Copy until the limit, the end of all partitions, or the idle timeout.

        ``note`` is printed when no record arrives for a moment and the start position is the default one.
        """
        out = sys.stdout.buffer
        started_s = last_s = time.monotonic()
        while not self._is_over:
            room = _BATCH if self._limit is None else min(_BATCH, self._limit - self._written)
            lines = self._read(room)
            for line in lines:
                out.write(line)
            self._written += len(lines)
            if self._stores or len(lines) < room:
                out.flush()
            self._store()
            now_s = time.monotonic()
            if lines or not self._has_started(now_s - started_s):
                last_s = now_s
            if note is not None and now_s - started_s >= _NOTE_AFTER_S and self._consumer.assignment():
                if self._written == 0 and self._starts_at_end():
                    typer.echo(note, err=True)
                note = None
            if self._idle_s is not None and now_s - last_s >= self._idle_s:
                break
        out.flush()

    def _has_started(self, passed_s: float) -> bool:
        """Tell whether each partition has answered, or has had its time for it."""
        if self._idle_s is None or passed_s >= _FIRST_ANSWERS_S:
            return True
        owned = self._consumer.assignment()
        return bool(owned) and self._answered.issuperset(owned)

    @property
    def _is_over(self) -> bool:
        if self._limit is not None and self._written >= self._limit:
            return True
        if not (self._exit_at_end and self._ended):
            return False
        owned = self._consumer.assignment()
        return bool(owned) and self._ended.issuperset(owned)

    def _starts_at_end(self) -> bool:
        """Return whether no partition has a committed offset to start from."""
        owned = self._consumer.assignment()
        return not self._stores or all(p.offset < 0 for p in self._consumer.committed(owned, _WAIT_S))

    def _read(self, room: int) -> list[bytes]:
        wait_s = _WAIT_S if self._idle_s is None else min(_WAIT_S, self._idle_s)
        lines = []
        for message in self._consumer.consume(room, 0) or self._consumer.consume(1, wait_s):
            error = message.error()
            if error is None or error == ErrorCode._PARTITION_EOF.code:
                self._answered.add(_place(message))
            if error is None:
                lines.append(self._to_line(message))
                if self._stores:
                    self._next[_place(message)] = (message.offset() or 0) + 1
                if self._ended:
                    self._ended.discard(_place(message))
            elif error == ErrorCode._PARTITION_EOF.code:
                self._ended.add(_place(message))
            elif error.code() in _PASSING:
                print_warning(error.str())
            else:
                raise error_for(error.error_code(), error.str())
        return lines

    def _store(self) -> None:
        owned = self._consumer.assignment() if self._stores and self._next else ()
        offsets = [TopicPartition(p.topic, p.partition, self._next[p]) for p in owned if p in self._next]
        if offsets:
            self._consumer.store_offsets(offsets=offsets)
        self._next.clear()


def _place(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)
