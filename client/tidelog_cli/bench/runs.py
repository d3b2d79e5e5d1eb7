"""The loops of ``tidelog bench``: bounded by a number of records, with a line of progress per second on stderr."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import typer

from tidelog.message import OFFSET_BEGINNING, OFFSET_END, Message, TopicPartition
from tidelog_cli.bench.pacing import Pace
from tidelog_cli.bench.report import Latencies, Report
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError, error_for

if TYPE_CHECKING:
    from tidelog.consumer import Consumer
    from tidelog.producer import Producer
    from tidelog_cli.options.connection import Session

_PROGRESS_S = 1.0
_BATCH = 1_000
_SERVE_EVERY = 100
_RECORD_TIMEOUT_S = 60.0


class _Progress:
    """Prints the progress of a run once a second."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._started_s = self._last_s = time.monotonic()
        self._last_count = 0

    def show(self, count: int, latencies: Latencies | None = None) -> None:
        """Print the progress if a second has passed."""
        now_s = time.monotonic()
        if now_s - self._last_s < _PROGRESS_S:
            return
        rate = (count - self._last_count) / (now_s - self._last_s)
        self._last_s, self._last_count = now_s, count
        times = ""
        if latencies is not None and latencies.count:
            times = f", p50 {latencies.percentile_ms(50):.1f} ms, p99 {latencies.percentile_ms(99):.1f} ms"
        typer.echo(f"{count:,} of {self._total:,} records, {rate:,.0f} records/s{times}", err=True)

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._started_s


def run_producer(
    session: Session, topic: str, records: int, size: int, rate: float | None, settings: Mapping[str, str]
) -> Report:
    """Send records, and wait until each is acknowledged or has failed.

    Raises:
        TidelogError: there is no such topic; the first error if no record was acknowledged.
    """
    with session.producer(settings) as producer:
        _require_topic(producer, topic, session.timeout_s)
        return _Sending(producer, topic, records, os.urandom(size), rate).run()


class _Sending:
    """Sends the same value many times."""

    def __init__(self, producer: Producer, topic: str, records: int, value: bytes, rate: float | None) -> None:
        self._producer = producer
        self._topic = topic
        self._records = records
        self._value = value
        self._latencies = Latencies()
        self._failed = 0
        self._error: KafkaError | None = None
        self._progress = _Progress(records)
        self._pace = Pace(rate, time.monotonic)

    def run(self) -> Report:
        """Send all records and return the report."""
        for number in range(self._records):
            due_s = self._pace.next_due_s()
            while left_s := self._pace.left_s(due_s):
                self._serve(0)
                time.sleep(min(left_s, 0.001))
            self._send(due_s)
            if number % _SERVE_EVERY == 0:
                self._serve(0)
        while self._producer.flush(_PROGRESS_S):
            self._progress.show(self._latencies.count, self._latencies)
        seconds = self._progress.seconds
        if self._error is not None and not self._latencies.count:
            raise error_for(self._error.error_code(), self._error.str())
        acknowledged = self._records - self._failed
        size = acknowledged * len(self._value)
        return Report("producer", self._topic, acknowledged, size, seconds, self._latencies, self._failed)

    def _send(self, due_s: float) -> None:
        on_delivery = partial(self._delivered, due_s)
        while True:
            try:
                self._producer.produce(self._topic, self._value, on_delivery=on_delivery)
            except BufferError:
                self._serve(_PROGRESS_S)
            else:
                return

    def _serve(self, timeout_s: float) -> None:
        self._producer.poll(timeout_s)
        self._progress.show(self._latencies.count, self._latencies)

    def _delivered(self, due_s: float, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._latencies.record(time.monotonic() - due_s)
        else:
            self._failed += 1
            self._error = self._error or error


def run_consumer(session: Session, topic: str, records: int) -> Report:
    """Read records from the beginning until there are enough, or until the end of all partitions.

    Raises:
        TidelogError: there is no such topic; a partition cannot be read.
    """
    count = size = 0
    ended: set[int | None] = set()
    with session.consumer({"enable.partition.eof": True, "auto.offset.reset": "earliest"}) as consumer:
        keys = _assign(consumer, topic, OFFSET_BEGINNING, session.timeout_s)
        progress = _Progress(records)
        while count < records and len(ended) < keys:
            for message in consumer.consume(min(_BATCH, records - count), 0.5):
                error = message.error()
                if error is None:
                    count += 1
                    size += len(message.value() or b"") + len(message.key() or b"")
                elif error == ErrorCode._PARTITION_EOF.code:
                    ended.add(message.partition())
                else:
                    _raise_unless_passing(error)
            progress.show(count)
        return Report("consumer", topic, count, size, progress.seconds)


def run_end_to_end(session: Session, topic: str, records: int, size: int, settings: Mapping[str, str]) -> Report:
    """Send each record after the previous one was read (Kafka's ``EndToEndLatency``).

    Raises:
        TidelogError: there is no such topic; a record was not acknowledged; _TIMED_OUT, one was not read.
    """
    value = os.urandom(max(size - 8, 0))
    latencies = Latencies()
    config = {"linger.ms": 0, **settings}
    with session.consumer({"auto.offset.reset": "latest"}) as consumer, session.producer(config) as producer:
        _assign(consumer, topic, OFFSET_END, session.timeout_s)
        _settle(consumer, topic, session.timeout_s)
        progress = _Progress(records)
        for number in range(records):
            record = (number.to_bytes(8, "big") + value)[:size]
            latencies.record(_round_trip(producer, consumer, topic, record))
            progress.show(number + 1, latencies)
        return Report("end-to-end", topic, records, records * size, progress.seconds, latencies)


def _round_trip(producer: Producer, consumer: Consumer, topic: str, record: bytes) -> float:
    failures: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    started_s = time.monotonic()
    producer.produce(topic, record, on_delivery=report)
    while time.monotonic() < started_s + _RECORD_TIMEOUT_S:
        producer.poll(0)
        if failures:
            raise error_for(failures[0].error_code(), failures[0].str())
        message = consumer.poll(0.1)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            _raise_unless_passing(error)
        elif message.value() == record:
            return time.monotonic() - started_s
    raise error_for(ErrorCode._TIMED_OUT, f"a record was not read within {_RECORD_TIMEOUT_S:g} s")


def _settle(consumer: Consumer, topic: str, timeout_s: float) -> None:
    """Wait until the consumer knows the end of each partition; it would not read records sent before that."""
    deadline_s = time.monotonic() + timeout_s
    keys = consumer.assignment()
    while any(consumer.get_watermark_offsets(key, cached=True)[1] < 0 for key in keys):
        if time.monotonic() > deadline_s:
            raise error_for(ErrorCode._TIMED_OUT, f"the partitions of {topic} could not be read for {timeout_s:g} s")
        consumer.poll(0.01)


def _assign(consumer: Consumer, topic: str, offset: int, timeout_s: float) -> int:
    partitions = _require_topic(consumer, topic, timeout_s)
    consumer.assign([TopicPartition(topic, partition, offset) for partition in partitions])
    return len(partitions)


def _require_topic(client: Producer | Consumer, topic: str, timeout_s: float) -> list[int]:
    known = client.list_topics(topic, timeout=timeout_s).topics[topic]
    if known.error is not None:
        raise error_for(known.error.error_code(), known.error.str())
    return sorted(known.partitions)


def _raise_unless_passing(error: KafkaError) -> None:
    if not error.retriable():
        raise TidelogError(error)
