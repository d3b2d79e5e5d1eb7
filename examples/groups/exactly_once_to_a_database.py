"""Exactly once into a database: the result and the offset are stored in one transaction, from which reading resumes.

The group divides the partitions among its members; the database, not the group, stores the positions.

Run it: python -m examples.groups.exactly_once_to_a_database [host:port]
"""

from __future__ import annotations

import sqlite3

from examples.groups.cluster import bootstrap_servers, create_topic, fill, new_name
from tidelog import OFFSET_BEGINNING, Consumer, Message, TopicPartition

SCHEMA = """
CREATE TABLE IF NOT EXISTS balances (account TEXT PRIMARY KEY, balance INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS positions (
    topic TEXT, partition INTEGER, next_offset INTEGER, PRIMARY KEY (topic, partition)
);
"""


class CrashError(Exception):
    """A simulated kill -9 in the middle of a transaction."""


class Ledger:
    """The balances, and the positions up to which they are computed."""

    def __init__(self, path: str) -> None:
        self.database = sqlite3.connect(path)
        self.database.executescript(SCHEMA)

    def next_offset(self, topic: str, partition: int) -> int:
        """Return the offset from which to resume."""
        query = "SELECT next_offset FROM positions WHERE topic = ? AND partition = ?"
        row = self.database.execute(query, (topic, partition)).fetchone()
        return OFFSET_BEGINNING if row is None else int(row[0])

    def book(self, message: Message, *, crash: bool = False) -> None:
        """Add an amount to an account and advance the position, atomically."""
        with self.database:
            self.database.execute(
                "INSERT INTO balances VALUES (?, ?)"
                " ON CONFLICT (account) DO UPDATE SET balance = balance + excluded.balance",
                (message.key().decode(), int(message.value())),
            )
            if crash:
                raise CrashError
            self.database.execute(
                "INSERT OR REPLACE INTO positions VALUES (?, ?, ?)",
                (message.topic(), message.partition(), message.offset() + 1),
            )

    def balances(self) -> dict[str, int]:
        """Return all balances."""
        return dict(self.database.execute("SELECT account, balance FROM balances ORDER BY account"))


def consume(servers: str, topic: str, group: str, ledger: Ledger, crash_at: int = 0) -> None:
    """Read all partitions to their ends, or crash in the middle of a booking."""

    def go_on(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            partition.offset = ledger.next_offset(partition.topic, partition.partition)
        consumer.assign(partitions)

    config = {
        "bootstrap.servers": servers,
        "group.id": group,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(config)
    at_end: set[int | None] = set()
    booked = 0
    try:
        consumer.subscribe([topic], on_assign=go_on)
        while not consumer.assignment() or len(at_end) < len(consumer.assignment()):
            message = consumer.poll(10)
            if message is None:
                return
            if message.error() is not None:
                at_end.add(message.partition())
                continue
            booked += 1
            ledger.book(message, crash=booked == crash_at)
    finally:
        consumer.close()


def main() -> None:
    """Crash in the middle of a booking and resume: each amount is booked once."""
    with bootstrap_servers() as servers:
        topic = create_topic(servers, new_name("payments"), 3)
        fill(servers, topic, {f"account {i}": ["10", "20", "30"] for i in range(4)})
        group, ledger = new_name("bookkeeper"), Ledger(":memory:")
        try:
            consume(servers, topic, group, ledger, crash_at=7)
        except CrashError:
            print(f"crashed with {ledger.balances()}")
        consume(servers, topic, group, ledger)
    print(f"in the end {ledger.balances()}")
    assert ledger.balances() == {f"account {i}": 60 for i in range(4)}


if __name__ == "__main__":
    main()
