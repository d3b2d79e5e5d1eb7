"""``tidelog consume``: records become lines on the standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from tidelog.cli.message_format import message_formatter
from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    BootstrapServers,
    Settings,
    TopicTimeout,
    parse_pairs,
)
from tidelog.cluster.client import unknown_partition
from tidelog.consumer import Consumer
from tidelog.errors import ErrorCode, KafkaError, error_for
from tidelog.message import OFFSET_BEGINNING, OFFSET_END, Message, TopicPartition

_BATCH = 500
_PASSING = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)  # type: ignore[attr-defined]


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.")],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start with the first record. Default: with the next that comes.")
    ] = False,
    offset: Annotated[
        int | None,
        typer.Option("--offset", "-o", min=0, metavar="OFFSET", help="Start with this offset in each partition."),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", min=0, metavar="N", help="Read only this one. May be repeated. Default: all."
        ),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, metavar="N", help="Exit after so many records.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="Exit when the end of every partition is reached.")
    ] = False,
    template: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="json, or text in which %t is the topic, %p the partition, %o the offset, %k the key, %v the value, "
            "%T the time in ms, %h the headers, %% a %, \\n and \\t as ever.",
        ),
    ] = "%v",
    settings: Settings = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout: TopicTimeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Print records as they come, one per line, until Ctrl-C.

    \b
    Examples:
      tidelog consume flights --from-beginning --exit-at-end --format json
      tidelog consume flights -p 3 --offset 100 -n 10 --format '%p:%o %k %v'
    """
    if from_beginning and offset is not None:
        raise typer.BadParameter("--from-beginning and --offset exclude each other", param_hint="--offset")
    try:
        to_line = message_formatter(template)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from error
    start = offset if offset is not None else OFFSET_BEGINNING if from_beginning else OFFSET_END
    config = {
        "bootstrap.servers": bootstrap_servers,
        "client.id": "tidelog-cli",
        "auto.offset.reset": "error",
        "enable.partition.eof": exit_at_end,
        **parse_pairs(settings, "--set"),
    }
    with Consumer(config) as consumer:
        chosen = _partitions(consumer, topic, partitions, timeout)
        consumer.assign([TopicPartition(topic, index, start) for index in chosen])
        _copy(consumer, to_line, len(chosen), max_messages)


def _partitions(consumer: Consumer, topic: str, wanted: list[int] | None, timeout: float) -> list[int]:
    known = consumer.list_topics(topic, timeout=timeout).topics[topic]
    if known.error is not None:
        raise error_for(known.error.error_code(), known.error.str())
    for index in wanted or ():
        if index not in known.partitions:
            raise unknown_partition(topic, index, len(known.partitions))
    return sorted(set(wanted)) if wanted else sorted(known.partitions)


def _copy(consumer: Consumer, to_line: Callable[[Message], bytes], partitions: int, limit: int | None) -> None:
    out = sys.stdout.buffer
    ended: set[int | None] = set()
    written = 0
    while len(ended) < partitions and (limit is None or written < limit):
        room = _BATCH if limit is None else min(_BATCH, limit - written)
        messages = consumer.consume(room, 0) or consumer.consume(1, 0.5)
        for message in messages:
            error = message.error()
            if error is None:
                out.write(to_line(message))
                written += 1
            elif error == ErrorCode._PARTITION_EOF.code:
                ended.add(message.partition())
            elif error.code() in _PASSING:
                typer.echo(f"warning: {error.name()}: {error.str()}", err=True)
            else:
                raise error_for(error.error_code(), error.str())
        if len(messages) < room:
            out.flush()
    out.flush()
