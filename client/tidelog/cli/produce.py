"""``tidelog produce``: lines of a file or of the standard input become records."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from tidelog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_TIMEOUT_S,
    BootstrapServers,
    Settings,
    TopicTimeout,
    parse_pairs,
)
from tidelog.errors import KafkaError, error_for
from tidelog.message import Message
from tidelog.producer import Producer

_PROGRESS_INTERVAL_S = 1.0
_INTERRUPTED_FLUSH_S = 2.0


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the records go.")],
    file: Annotated[
        Path | None,
        typer.Argument(
            exists=True, dir_okay=False, metavar="FILE", help="Its lines are sent. Default: the standard input."
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-K",
            metavar="TEXT",
            help="What stands between key and value; a line without it is a value. Default: there are no keys.",
        ),
    ] = None,
    partition: Annotated[
        int, typer.Option("--partition", "-p", min=-1, metavar="N", help="The partition; -1 lets the key decide.")
    ] = -1,
    compression: Annotated[
        str, typer.Option("--compression", "-z", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    settings: Settings = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout: TopicTimeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Send each line of a file as a record, and wait until all are acknowledged.

    \b
    Examples:
      echo '{"carrier": "UA"}' | tidelog produce flights
      tidelog produce flights flights.tsv --key-separator $'\\t' --compression zstd
    """
    config = {
        "bootstrap.servers": bootstrap_servers,
        "client.id": "tidelog-cli",
        "compression.type": compression,
        **parse_pairs(settings, "--set"),
    }
    with ExitStack() as stack:
        lines = stack.enter_context(file.open("rb")) if file else sys.stdin.buffer
        producer = stack.enter_context(Producer(config))
        known = producer.list_topics(topic, timeout=timeout).topics[topic]
        if known.error is not None:
            raise error_for(known.error.error_code(), known.error.str())
        _Upload(producer, topic, partition, key_separator).run(lines)


class _Upload:
    """Sends lines and counts what becomes of them."""

    def __init__(self, producer: Producer, topic: str, partition: int, key_separator: str | None) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._separator = key_separator.encode() if key_separator else None
        self._sent = 0
        self._acknowledged = 0
        self._first_error: KafkaError | None = None
        self._started = time.monotonic()
        self._next_progress = self._started + _PROGRESS_INTERVAL_S

    def run(self, lines: BinaryIO) -> None:
        """Send all lines; Ctrl-C waits a moment for what was sent, and gives up the rest."""
        try:
            self._send_all(lines)
        except KeyboardInterrupt:
            self._producer.flush(_INTERRUPTED_FLUSH_S)
            self._producer.purge()
            self._producer.poll(0)
            self._summarize()
            raise
        self._finish()

    def _send_all(self, lines: BinaryIO) -> None:
        for line in lines:
            self._send(line.rstrip(b"\r\n"))
            if self._sent % 1_000 == 0:
                self._producer.poll(0)
                self._show_progress()
        while self._producer.flush(_PROGRESS_INTERVAL_S):
            self._show_progress()

    def _send(self, line: bytes) -> None:
        key: bytes | None = None
        value = line
        if self._separator is not None:
            key, found, value = line.partition(self._separator)
            if not found:
                key, value = None, line
        while True:
            try:
                self._producer.produce(self._topic, value, key, self._partition, self._report)
            except BufferError:
                self._producer.poll(_PROGRESS_INTERVAL_S)
                self._show_progress()
            else:
                break
        self._sent += 1

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._acknowledged += 1
        elif self._first_error is None:
            self._first_error = error

    def _show_progress(self) -> None:
        now = time.monotonic()
        if now >= self._next_progress and sys.stderr.isatty():
            self._next_progress = now + _PROGRESS_INTERVAL_S
            typer.echo(f"{self._acknowledged:,} of {self._sent:,} records acknowledged", err=True)

    def _summarize(self) -> None:
        seconds = time.monotonic() - self._started
        of = "" if self._acknowledged == self._sent else f" of {self._sent:,}"
        noun = "record" if self._sent == 1 else "records"
        typer.echo(f"{self._acknowledged:,}{of} {noun} to {self._topic} in {seconds:.2f} s", err=True)

    def _finish(self) -> None:
        self._summarize()
        if self._first_error is not None:
            lost = self._sent - self._acknowledged
            text = f"{lost} of {self._sent} records were not acknowledged: {self._first_error.str()}"
            raise error_for(self._first_error.error_code(), text)
