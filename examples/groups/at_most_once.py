"""At most once: the offset is committed before the record is processed. A crash may lose records but repeats none.

This suits data that is worthless when late, such as metrics and caches.

Run it: python -m examples.groups.at_most_once [host:port]
"""

from __future__ import annotations

from examples.groups.cluster import bootstrap_servers, create_topic, fill, new_name
from tidelog import Consumer


class CrashError(Exception):
    """A simulated kill -9."""


def consume(servers: str, topic: str, group: str, seen: list[str], crash_at: str = "") -> None:
    """Read to the end, or crash at a value."""
    config = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(config)
    try:
        consumer.subscribe([topic])
        while True:
            message = consumer.poll(10)
            if message is None or message.error() is not None:
                return
            consumer.commit(message, asynchronous=False)
            value = message.value().decode()
            if value == crash_at:
                raise CrashError
            seen.append(value)
    finally:
        consumer.close()


def main() -> None:
    """Crash in the middle and resume: the record in progress is lost, none is repeated."""
    with bootstrap_servers() as servers:
        topic = create_topic(servers, new_name("metrics"), 1)
        fill(servers, topic, {"sensor": [f"reading {i}" for i in range(5)]})
        group, seen = new_name("dashboard"), list[str]()
        try:
            consume(servers, topic, group, seen, crash_at="reading 2")
        except CrashError:
            print(f"crashed after {seen}")
        consume(servers, topic, group, seen)
    print(f"seen in all: {seen}")
    assert seen == ["reading 0", "reading 1", "reading 3", "reading 4"]


if __name__ == "__main__":
    main()
