"""The word count of Kafka Streams as a process, and the writer of its words."""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import confluent_kafka
from compat.clients.client import DEADLINE_S
from compat.jars import QUICK_JAVA, java, streams_class_path

_SETTINGS = {
    "processing.guarantee": "exactly_once_v2",
    "replication.factor": 3,
    "commit.interval.ms": 200,
    # Every count is written, so that one that is lost or counted twice shows.
    "statestore.cache.max.bytes": 0,
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
    "producer.transaction.timeout.ms": 10_000,
    # The admin client of Kafka 4.1 remembers leaders, and waits for a dead one until this time is over, else 60 s.
    # The assignor of Kafka Streams then goes on without the answer.
    "admin.request.timeout.ms": 5_000,
    "admin.default.api.timeout.ms": 5_000,
}


class WordCount:
    """An instance: a JVM that counts the words of ``input`` into ``output``, of one application with others."""

    def __init__(self, servers: str, application: str, input: str, output: str, folder: Path) -> None:
        """Raises Unavailable where there is no Java, or no jars of Kafka Streams."""
        settings = {"bootstrap.servers": servers, "application.id": application, "state.dir": folder, **_SETTINGS}
        given = [f"{key}={value}" for key, value in settings.items()]
        folder.mkdir(parents=True)
        self._log = folder / "output.txt"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    java(),
                    *QUICK_JAVA,
                    "-Dorg.slf4j.simpleLogger.showDateTime=true",
                    "-cp",
                    streams_class_path(),
                    "WordCount",
                    input,
                    output,
                    *given,
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def is_running(self) -> bool:
        """Return whether it has come to run, and not stopped since; AssertionError if it has ended."""
        assert self._process.poll() is None, f"the word count ended:\n{self.said()}"
        return "RUNNING" in self.said().splitlines()

    def said(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        """SIGKILL it."""
        assert self._process.stdin is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()

    def stop(self) -> int:
        """Have it close its streams; returns its exit code. One that has ended already keeps its own."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(DEADLINE_S)
        finally:
            self.kill()


class WordWriter(threading.Thread):
    """Writes lines of words in transactions, of which it aborts some, until it is stopped."""

    def __init__(self, servers: str, topic: str, partitions: int, pause_s: float = 0.1) -> None:
        super().__init__(name="words", daemon=True)
        self.transactional_id = f"{topic}-writer"
        self.committed: Counter[str] = Counter()
        self.error: BaseException | None = None
        self._topic, self._partitions, self._pause_s = topic, partitions, pause_s
        self._stopped = threading.Event()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "transactional.id": self.transactional_id, "transaction.timeout.ms": 30_000}
        )

    def stop(self) -> None:
        """Stop after the transaction that it is at; raises what went wrong."""
        self._stopped.set()
        self.join(DEADLINE_S)
        if self.error is not None:
            raise self.error
        assert not self.is_alive(), "the writer does not end"

    def run(self) -> None:
        try:
            self._producer.init_transactions(DEADLINE_S)
            for number in itertools.count():
                self._write(number)
                if self._stopped.wait(self._pause_s):
                    return
        except BaseException as error:  # noqa: BLE001 - whatever it is, stop() raises it
            self.error = error

    def _write(self, number: int) -> None:
        lines = [[f"word-{(number * index + index) % 23}" for index in range(5 * k, 5 * k + 5)] for k in range(8)]
        self._producer.begin_transaction()
        for index, words in enumerate(lines):
            self._producer.produce(self._topic, " ".join(words), partition=(number + index) % self._partitions)
        if number % 5 == 4:
            self._until_done(self._producer.abort_transaction)
        elif self._until_done(self._producer.commit_transaction):
            self.committed.update(itertools.chain.from_iterable(lines))

    def _until_done(self, end: Any) -> bool:
        """Return whether a transaction ended so, and was not aborted."""
        while True:
            try:
                end(5)
                return True
            except confluent_kafka.KafkaException as raised:
                error = raised.args[0]
                if error.txn_requires_abort():
                    self._until_done(self._producer.abort_transaction)
                    return False
                if not error.retriable():
                    raise
