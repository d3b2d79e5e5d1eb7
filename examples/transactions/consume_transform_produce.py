"""Exactly once from topic to topic: the results and the offsets of their sources are one transaction.

A crash before the commit aborts both: no reader of committed records sees the results, and the next run reads the
sources again. The producer's transactional id belongs to this worker; a second worker needs one of its own. A worker
that comes back after its partitions went to another one cannot commit, because its group membership is old (KIP-447).

Run it: python -m examples.transactions.consume_transform_produce [host:port]
"""

from __future__ import annotations

from examples.groups.cluster import bootstrap_servers, create_topic, fill, new_name
from tidelog import Consumer, Producer, TopicPartition


class CrashError(Exception):
    """A simulated kill -9."""


def transform(servers: str, source: str, target: str, group: str, crash_at: str = "") -> None:
    """Copy all records of a topic in upper case, two per transaction; or crash at a value, before the commit."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{group}-worker-1"})
    producer.init_transactions()
    with consumer, producer:
        consumer.subscribe([source])
        is_at_end = False
        while not is_at_end:
            records = consumer.consume(2, 10)
            is_at_end = not records or any(record.error() is not None for record in records)
            values = [record.value().decode() for record in records if record.error() is None]
            with producer.transaction():
                for value in values:
                    producer.produce(target, value.upper())
                if crash_at in values:
                    raise CrashError
                positions = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())


def committed(servers: str, topic: str) -> list[str]:
    """Return the committed records of a topic's only partition."""
    with Consumer({"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values = []
        while (message := consumer.poll(10)) is not None and message.error() is None:
            values.append(message.value().decode())
        return values


def main() -> None:
    """Crash in the middle and resume: each record is transformed once."""
    with bootstrap_servers() as servers:
        source, target = (create_topic(servers, new_name(name), 1) for name in ("orders", "invoices"))
        fill(servers, source, {"customer": [f"order {i}" for i in range(5)]})
        group = new_name("billing")
        try:
            transform(servers, source, target, group, crash_at="order 3")
        except CrashError:
            print(f"crashed after {committed(servers, target)}")
        transform(servers, source, target, group)
        results = committed(servers, target)
    print(f"results: {results}")
    assert results == [f"ORDER {i}" for i in range(5)]


if __name__ == "__main__":
    main()
