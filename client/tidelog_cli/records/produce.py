"""``tidelog produce``: sends lines of a file or of the standard input as records."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from tidelog.message import Message
from tidelog.producer import Producer
from tidelog_cli.bench.pacing import Pace
from tidelog_cli.options.completion import complete_topic
from tidelog_cli.options.connection import Acks, Compression, Rate, Session, connected
from tidelog_cli.output.printing import UsageError, counted, print_json, print_warning
from tidelog_cli.records.line_format import InvalidLineError, LineFormat, ProducedRecord
from tidelog_foundation.errors import INSECURE, ErrorCode, KafkaError, error_for

_PROGRESS_INTERVAL_S = 1.0
_INTERRUPTED_FLUSH_S = 2.0


_Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic that receives the records.", autocompletion=complete_topic)
]
_File = Annotated[
    Path | None,
    typer.Argument(exists=True, dir_okay=False, metavar="FILE", help="The file to read. Default: the standard input."),
]
_KeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator",
        "-K",
        metavar="TEXT",
        help="The text between key and value; a line without it is a value. Default: records have no keys.",
    ),
]
_Key = Annotated[str | None, typer.Option("--key", "-k", metavar="TEXT", help="The key of all records.")]
_Headers = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of all records. May be repeated."),
]
_HeadersDelimiter = Annotated[
    str | None,
    typer.Option(
        "--headers-delimiter",
        metavar="TEXT",
        help="The text after the headers at the start of each line, which look like name:value,name:value.",
    ),
]
_Tombstone = Annotated[
    bool,
    typer.Option("--tombstone", "-Z", help="Send an empty value as null, which deletes the key in a compacted topic."),
]
_InputFormat = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        metavar="lines|json",
        help="The form of lines: values, or JSON as tidelog consume --format json prints it.",
    ),
]
_Partition = Annotated[
    int, typer.Option("--partition", "-p", min=-1, metavar="N", help="The partition; -1 means that the key decides.")
]


@connected
def produce(
    session: Session,
    topic: _Topic,
    file: _File = None,
    key_separator: _KeySeparator = None,
    key: _Key = None,
    headers: _Headers = None,
    headers_delimiter: _HeadersDelimiter = None,
    tombstone: _Tombstone = False,
    input_format: _InputFormat = "lines",
    partition: _Partition = -1,
    compression: Compression = "none",
    acks: Acks = "all",
    rate: Rate = None,
) -> None:
    """Send each line of a file as a record, and wait until all are acknowledged.

    \b
    Examples:
      echo '{"carrier": "UA"}' | tidelog produce flights
      tidelog produce flights flights.tsv --key-separator $'\\t' --compression zstd
      tidelog produce flights flights.csv --header source=csv --rate 1000
    """
    if input_format not in ("lines", "json"):
        raise typer.BadParameter(f'"{input_format}" is neither lines nor json.', param_hint="--format")
    if input_format == "json" and (key_separator or headers_delimiter):
        raise UsageError(
            "--format json cannot be combined with --key-separator or --headers-delimiter: JSON names key and headers."
        )
    if key is not None and key_separator is not None:
        raise UsageError("--key and --key-separator exclude each other.")
    to_record = LineFormat(
        is_json=input_format == "json",
        key=None if key is None else key.encode(),
        key_separator=(key_separator or "").encode(),
        headers=_headers(headers),
        headers_delimiter=(headers_delimiter or "").encode(),
        has_tombstones=tombstone,
        partition=partition,
    )
    with ExitStack() as stack:
        lines = stack.enter_context(file.open("rb")) if file else sys.stdin.buffer
        settings = {"compression.type": compression, "acks": acks, "error_cb": _warn}
        producer = stack.enter_context(session.producer(settings))
        known = producer.list_topics(topic, timeout=session.timeout_s).topics[topic]
        if known.error is not None:
            raise error_for(known.error.error_code(), known.error.str())
        _Upload(session, producer, topic, to_record, rate).run(lines)


class _Upload:
    """Sends lines and counts the results."""

    def __init__(
        self, session: Session, producer: Producer, topic: str, to_record: LineFormat, rate: float | None
    ) -> None:
        self._session = session
        self._producer = producer
        self._topic = topic
        self._to_record = to_record
        self._pace = Pace(rate, time.monotonic)
        self._sent = 0
        self._acknowledged = 0
        self._first_error: KafkaError | None = None
        self._started = time.monotonic()
        self._next_progress = self._started + _PROGRESS_INTERVAL_S

    def run(self, lines: Iterable[bytes]) -> None:
        """Send all lines; Ctrl-C waits a moment for sent records, and drops the rest."""
        try:
            self._send_all(lines)
        except KeyboardInterrupt:
            self._producer.flush(_INTERRUPTED_FLUSH_S)
            self._producer.purge()
            self._producer.poll(0)
            self._summarize()
            raise
        except InvalidLineError as error:
            self._producer.flush()
            self._summarize()
            raise error_for(ErrorCode._INVALID_ARG, f"line {self._sent + 1}: {error}") from None
        self._finish()

    def _send_all(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            record = self._to_record(line.rstrip(b"\r\n"))
            self._await_turn()
            self._send(record)
            if self._sent % 1_000 == 0:
                self._producer.poll(0)
                self._show_progress()
        while self._producer.flush(_PROGRESS_INTERVAL_S):
            self._show_progress()

    def _await_turn(self) -> None:
        due_s = self._pace.next_due_s()
        while left_s := self._pace.left_s(due_s):
            started = time.monotonic()
            self._producer.poll(min(left_s, _PROGRESS_INTERVAL_S))
            self._show_progress()
            # poll() returns with the first report.
            time.sleep(max(0.0, min(left_s, 0.01) - (time.monotonic() - started)))

    def _send(self, record: ProducedRecord) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    record.partition,
                    self._report,
                    record.timestamp_ms,
                    record.headers or None,
                )
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
        if self._session.as_json:
            counts = {"sent": self._sent, "acknowledged": self._acknowledged, "seconds": round(seconds, 3)}
            print_json({"topic": self._topic, **counts})

    def _finish(self) -> None:
        self._summarize()
        if self._first_error is not None:
            lost = self._sent - self._acknowledged
            text = f"{lost} of {counted(self._sent, 'record')} not acknowledged: {self._first_error.str()}"
            raise error_for(self._first_error.error_code(), text)


def _warn(error: KafkaError) -> None:
    """Print a failure of TLS or a refused login while the producer retries; the end reports all other errors."""
    if error.error_code() in INSECURE:
        print_warning(error.str())


def _headers(texts: list[str] | None) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers of ``--header``, in order; a name may be repeated."""
    headers: list[tuple[str, bytes | None]] = []
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f'"{text}" is not NAME=VALUE.', param_hint="--header")
        headers.append((name, value.encode()))
    return tuple(headers)
