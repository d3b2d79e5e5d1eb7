"""At least once: the offset is committed after the record is processed. A crash repeats records but loses none.

This suits most applications, provided that processing is idempotent. The offset of each record is stored when its
processing is complete; the consumer commits the stored offsets every second and when it closes.

Run it: python -m examples.groups.at_least_once [host:port]
"""

from __future__ import annotations

from examples.groups.cluster import bootstrap_servers, create_topic, fill, new_name
from tidelog import Consumer


class CrashError(Exception):
    """A simulated failure between the processing and its commit."""


def consume(servers: str, topic: str, group: str, done: list[str], crash_after: str = "") -> None:
    """Read to the end, or crash after a value before its offset is stored."""
    config = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 1_000,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(config)
    try:
        consumer.subscribe([topic])
        while True:
            message = consumer.poll(10)
            if message is None or message.error() is not None:
                return
            done.append(message.value().decode())
            if done[-1] == crash_after:
                raise CrashError
            consumer.store_offsets(message)
    finally:
        consumer.close()


def main() -> None:
    """Crash in the middle and resume: the record in progress is repeated, none is lost."""
    with bootstrap_servers() as servers:
        topic = create_topic(servers, new_name("orders"), 1)
        fill(servers, topic, {"customer": [f"order {i}" for i in range(5)]})
        group, done = new_name("warehouse"), list[str]()
        try:
            consume(servers, topic, group, done, crash_after="order 2")
        except CrashError:
            print(f"crashed after {done}")
        consume(servers, topic, group, done)
    print(f"done in all: {done}")
    assert done == ["order 0", "order 1", "order 2", "order 2", "order 3", "order 4"]


if __name__ == "__main__":
    main()
