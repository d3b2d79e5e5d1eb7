"""A custom partitioner: large customers get a partition each, all others share the rest.

Run it: python -m examples.groups.custom_partitioner [host:port]
"""

from __future__ import annotations

import zlib

from examples.groups.cluster import bootstrap_servers, create_topic, new_name
from tidelog import KafkaError, Message, Producer

LARGE = {b"acme": 0, b"globex": 1}


def by_customer(topic: str, key: bytes | None, partitions: int) -> int:
    """Return the partition of a record."""
    if key in LARGE:
        return LARGE[key]
    return len(LARGE) + zlib.crc32(key or b"") % (partitions - len(LARGE))


def main() -> None:
    """Produce for five customers and print the partitions of their records."""
    stored: dict[bytes, set[int]] = {}

    def report(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        stored.setdefault(message.key(), set()).add(message.partition() or 0)

    with bootstrap_servers() as servers:
        topic = create_topic(servers, new_name("invoices"), 6)
        with Producer({"bootstrap.servers": servers, "partitioner": by_customer}) as producer:
            for number in range(20):
                for customer in ("acme", "globex", "initech", "umbrella", "hooli"):
                    producer.produce(topic, f"invoice {number}", customer, on_delivery=report)
    for customer, partitions in sorted(stored.items()):
        print(f"{customer.decode():10} partition {sorted(partitions)}")
    assert stored[b"acme"] == {0}
    assert stored[b"globex"] == {1}
    assert all(p >= 2 for customer in (b"initech", b"umbrella", b"hooli") for p in stored[customer])


if __name__ == "__main__":
    main()
