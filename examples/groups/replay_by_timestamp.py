"""Replay from a point in time: the consumer looks up the offsets of a timestamp and reads from there.

Committed offsets have no effect.

Run it: python -m examples.groups.replay_by_timestamp [host:port]
"""

from __future__ import annotations

from examples.groups.cluster import bootstrap_servers, create_topic, new_name
from tidelog import Consumer, Producer, TopicPartition

HOUR_MS = 3_600_000
NOON_MS = 1_700_000_000_000


def main() -> None:
    """Write a record per hour into two partitions, and read the records from three o'clock on."""
    with bootstrap_servers() as servers:
        topic = create_topic(servers, new_name("trades"), 2)
        with Producer({"bootstrap.servers": servers}) as producer:
            for hour in range(6):
                producer.produce(topic, f"trade at {hour}", partition=hour % 2, timestamp=NOON_MS + hour * HOUR_MS)
        with Consumer({"bootstrap.servers": servers, "enable.partition.eof": True}) as consumer:
            wanted = [TopicPartition(topic, partition, NOON_MS + 3 * HOUR_MS) for partition in range(2)]
            starts = consumer.offsets_for_times(wanted, timeout=10)
            for start in starts:
                print(f"partition {start.partition}: from offset {start.offset} on")
            consumer.assign(starts)
            seen, ended = list[str](), 0
            while ended < len(starts):
                message = consumer.poll(10)
                assert message is not None
                if message.error() is not None:
                    ended += 1
                else:
                    seen.append(message.value().decode())
    print(f"seen: {sorted(seen)}")
    assert sorted(seen) == ["trade at 3", "trade at 4", "trade at 5"]


if __name__ == "__main__":
    main()
