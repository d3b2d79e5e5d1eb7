"""A thread that follows the topic's leaders and in-sync replicas during the demo."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidelog import AdminClient, KafkaException

_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition in a node's metadata."""

    leader: int
    isr: frozenset[int]


class TopicWatch:
    """Counts the changes that it sees, checking about ten times a second."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topic-watch", daemon=True)
        self.leader_changes = 0
        self.isr_changes = 0
        self.view: dict[int, PartitionView] = {}

    def __enter__(self) -> TopicWatch:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def busiest_leader(self) -> int:
        """Return the node that leads the most partitions."""
        leaders = [view.leader for view in self.view.values() if view.leader >= 0]
        return max(sorted(set(leaders)), key=leaders.count)

    def wait_until(self, condition: Callable[[dict[int, PartitionView]], bool], what: str, timeout_s: float) -> None:
        """Wait until the view fulfills a condition.

        Raises:
            TimeoutError: The condition does not hold in time. The message has the last view.
        """
        deadline = time.monotonic() + timeout_s
        while not condition(self.view):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {timeout_s:.0f} s; last seen {self.view}")
            time.sleep(_INTERVAL_S / 2)

    def _run(self) -> None:
        while not self._stopping.wait(_INTERVAL_S):
            self._look()

    def _look(self) -> None:
        try:
            topic = self._admin.list_topics(self._topic, timeout=5).topics[self._topic]
        except KafkaException:
            return
        for index, partition in topic.partitions.items():
            now = PartitionView(partition.leader, frozenset(partition.isrs))
            before = self.view.get(index, now)
            self.leader_changes += now.leader != before.leader and now.leader >= 0
            self.isr_changes += now.isr != before.isr
            self.view[index] = now
