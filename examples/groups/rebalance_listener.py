"""Rebalance callbacks: a partition's state is created when it is assigned and saved before it is revoked.

The second member joins while the first one works. With cooperative-sticky only the partitions that move are revoked.

Run it: python -m examples.groups.rebalance_listener [host:port]
"""

from __future__ import annotations

import time

from examples.groups.cluster import bootstrap_servers, create_topic, fill, new_name
from tidelog import Consumer, TopicPartition

DEADLINE_S = 30


class CountingMember:
    """A member that counts the records of each of its partitions."""

    def __init__(self, name: str, servers: str, topic: str, group: str) -> None:
        self.name = name
        self.counts: dict[int, int] = {}
        self.saved: dict[int, int] = {}
        config = {
            "bootstrap.servers": servers,
            "group.id": group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": 200,
        }
        self.consumer = Consumer(config)
        self.consumer.subscribe([topic], on_assign=self.come, on_revoke=self.go, on_lost=self.lose)

    def come(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Create the state of partitions. Without assign() here, the consumer reads from the committed offsets."""
        self.counts |= {p.partition: 0 for p in partitions}
        print(f"{self.name} gets {sorted(p.partition for p in partitions)}")

    def go(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Save the state of partitions before another member has them. Their offsets are committed afterwards."""
        self.saved |= {p.partition: self.counts.pop(p.partition) for p in partitions}
        print(f"{self.name} gives up {sorted(p.partition for p in partitions)}")

    def lose(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Drop the state of partitions that other members may have already. Nothing may be committed any more."""
        for partition in partitions:
            self.counts.pop(partition.partition, None)

    def work(self) -> None:
        """Count the records that arrive within a moment."""
        for message in self.consumer.consume(100, 0.1):
            if message.error() is None:
                self.counts[message.partition() or 0] += 1


def main() -> None:
    """Let a second member join, and show that the first one keeps the partitions that do not move."""
    with bootstrap_servers() as servers:
        topic = create_topic(servers, new_name("clicks"), 4)
        fill(servers, topic, {f"user {i}": ["click"] * 10 for i in range(20)})
        group = new_name("counters")
        first = CountingMember("first", servers, topic, group)
        work_until(lambda: sum(first.counts.values()) == 200, first)
        kept = set(first.counts)
        second = CountingMember("second", servers, topic, group)
        work_until(lambda: len(first.counts) == len(second.counts) == 2, first, second)
        assert set(first.counts) < kept
        assert not set(first.counts) & set(second.counts)
        first.consumer.close()
        work_until(lambda: len(second.counts) == 4, second)
        second.consumer.close()
    print(f"counted by the first member: {sum(first.saved.values())} records")
    assert sum(first.saved.values()) == 200


def work_until(condition: object, *members: CountingMember) -> None:
    """Let the members work until a condition holds."""
    assert callable(condition)
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        for member in members:
            member.work()


if __name__ == "__main__":
    main()
