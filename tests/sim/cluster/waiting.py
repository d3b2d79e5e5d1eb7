"""The waits of the simulated shell: the product's purgatory, in an order that does not depend on the process."""

from __future__ import annotations

from tidelog_node.partitions.purgatory import OffsetWaiters, PartitionListener, PartitionListeners, PartitionWaiters


class OrderedReadWaiters(PartitionListeners):
    """Wakes in the order in which they came, so that equal schedules give equal histories."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[PartitionListener, str, int], None] = {}  # type: ignore[assignment]

    def add(self, reader: PartitionListener, topic: str, index: int) -> None:
        self.waiting[reader, topic, index] = None

    def discard(self, reader: PartitionListener, topic: str, index: int) -> None:
        self.waiting.pop((reader, topic, index), None)

    def wake(self) -> None:
        for reader, topic, index in list(self.waiting):
            reader.wake(topic, index)


class SimulatedWaiters(PartitionWaiters):
    """Everybody who waits for something of one partition."""

    def __init__(self) -> None:
        self.producers = OffsetWaiters()
        self.deletions = OffsetWaiters()
        self.log_end = OrderedReadWaiters()
        self.high_watermark = OrderedReadWaiters()
