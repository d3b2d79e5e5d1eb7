"""A subscription by pattern: matching topics are read as soon as they exist.

Run it: python -m examples.groups.regex_subscription [host:port]
"""

from __future__ import annotations

import time

from examples.groups.cluster import bootstrap_servers, create_topic, fill, new_name
from tidelog import Consumer

DEADLINE_S = 30


def main() -> None:
    """Read two of three topics, then a fourth that is created meanwhile."""
    with bootstrap_servers() as servers:
        prefix = new_name("logs")
        for name in ("web", "mail"):
            fill(servers, create_topic(servers, f"{prefix}.{name}", 1), {name: [f"{name} was here"]})
        fill(servers, create_topic(servers, new_name("other"), 1), {"other": ["never seen"]})
        config = {
            "bootstrap.servers": servers,
            "group.id": new_name("archive"),
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 300,
        }
        with Consumer(config) as consumer:
            # A name that begins with ^ is a pattern.
            consumer.subscribe([f"^{prefix}\\..*"])
            seen = read(consumer, 2)
            fill(servers, create_topic(servers, f"{prefix}.ftp", 1), {"ftp": ["ftp was here"]})
            seen |= read(consumer, 1)
    print(f"seen: {sorted(seen)}")
    assert seen == {"web was here", "mail was here", "ftp was here"}


def read(consumer: Consumer, count: int) -> set[str]:
    """Return ``count`` distinct values."""
    values: set[str] = set()
    deadline = time.monotonic() + DEADLINE_S
    while len(values) < count:
        assert time.monotonic() < deadline, "it took too long"
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.add(message.value().decode())
    return values


if __name__ == "__main__":
    main()
