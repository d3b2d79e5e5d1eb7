"""The cluster of an example: at the given address, or in memory for the duration of the program."""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Iterator, Mapping

from tidelog import AdminClient, NewTopic, Producer
from tidelog.testing import FakeCluster


@contextlib.contextmanager
def bootstrap_servers() -> Iterator[str]:
    """Yield the command line's address, or that of a new in-memory cluster."""
    if len(sys.argv) > 1:
        yield sys.argv[1]
        return
    with FakeCluster() as cluster:
        yield cluster.bootstrap_servers


def new_name(prefix: str) -> str:
    """Return a name that no topic or group has yet."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def create_topic(servers: str, name: str, partitions: int) -> str:
    """Create a topic and return its name."""
    with AdminClient({"bootstrap.servers": servers}) as admin:
        admin.create_topics([NewTopic(name, partitions)])[name].result()
    return name


def fill(servers: str, topic: str, values: Mapping[str, list[str]]) -> None:
    """Produce the values of each key in order."""
    with Producer({"bootstrap.servers": servers}) as producer:
        for key, rows in values.items():
            for row in rows:
                producer.produce(topic, row, key)
