"""The figures behind a client's pushed metrics, which its parts record on the network thread.

The metrics are the required ones of KIP-714, with Kafka's names. Latencies are in milliseconds. A metric without a
value is not pushed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tidelog.telemetry.points import Attributes, Point
from tidelog.telemetry.sampled import Sampled

UNKNOWN_NODE: Final = -1
"""The node id of a bootstrap server, as in Kafka's clients."""


class NodeMeasures:
    """The requests to one address."""

    __slots__ = ("in_flight", "is_connected", "latency")

    def __init__(self) -> None:
        self.is_connected = False
        """True from an answer until the connection fails."""
        self.in_flight = 0
        self.latency = Sampled()


class ConnectionMeasures:
    """The connections and requests of a client. Times are in milliseconds of the monotonic clock."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeMeasures] = {}
        """By address."""
        self.on_connect: Callable[[], object] | None = None
        """Called when an address answers for the first time, or again after a failure."""
        self._created = 0
        self._creations = Sampled()

    def begin(self, address: str) -> None:
        """Record the start of a request."""
        node = self.nodes.get(address)
        if node is None:
            node = self.nodes[address] = NodeMeasures()
        node.in_flight += 1

    def answered(self, address: str, began_ms: float, now_ms: float) -> None:
        """Record the end of a request that a node has answered, perhaps with an error."""
        node = self.nodes[address]
        node.in_flight -= 1
        node.latency.record(now_ms - began_ms, now_ms)
        if not node.is_connected:
            node.is_connected = True
            self._created += 1
            self._creations.record(1, now_ms)
            if self.on_connect is not None:
                self.on_connect()

    def failed(self, address: str, *, is_connected: bool) -> None:
        """Record the end of a request without an answer, such as a cancelled one."""
        node = self.nodes[address]
        node.in_flight -= 1
        node.is_connected = node.is_connected and is_connected

    def least_loaded(self, current: str | None) -> str | None:
        """Return the connected address with the fewest requests in flight, or None without one.

        ``current`` stays until its connection fails, since a node limits the pushes of its clients by their intervals.
        """
        connected = [address for address, node in self.nodes.items() if node.is_connected]
        if current in connected:
            return current
        return min(connected, key=lambda address: self.nodes[address].in_flight, default=None)

    def points(self, prefix: str, now_ms: float, node_ids: Mapping[str, int]) -> Iterator[Point]:
        """Return the metrics of connections and nodes. ``node_ids`` are the ids of addresses."""
        if self._created:
            yield Point(f"{prefix}.connection.creation.rate", self._creations.per_second(now_ms))
            yield Point(f"{prefix}.connection.creation.total", self._created, is_counter=True)
        for address, node in self.nodes.items():
            node_id = str(node_ids.get(address, UNKNOWN_NODE))
            yield from extremes(f"{prefix}.node.request.latency", node.latency, now_ms, (("node_id", node_id),))


class ProducerMeasures:
    """The waits of a producer's batches."""

    def __init__(self) -> None:
        self.queue_time = Sampled()
        """The time from the first record of a batch to its request."""
        self.throttle_time = Sampled()
        """The time by which a quota has delayed a produce request."""

    def points(self, prefix: str, now_ms: float) -> Iterator[Point]:
        """Return the metrics."""
        yield from extremes(f"{prefix}.produce.throttle.time", self.throttle_time, now_ms)
        yield from extremes(f"{prefix}.record.queue.time", self.queue_time, now_ms)


class IdleTime:
    """The time that a consumer's poll() waits for records. The application's thread records it."""

    def __init__(self, now_ms: float) -> None:
        self._total_ms = 0.0
        self._since_ms: float | None = None
        self._last = (now_ms, 0.0)

    def begin(self, now_ms: float) -> None:
        """Record the start of a wait."""
        self._since_ms = now_ms

    def end(self, now_ms: float) -> None:
        """Record the end of a wait."""
        if self._since_ms is not None:
            self._total_ms += now_ms - self._since_ms
            self._since_ms = None

    def ratio(self, now_ms: float) -> float | None:
        """Return the idle share of the time since the last call, or None if no time has passed."""
        since_ms = self._since_ms
        total_ms = self._total_ms + (0.0 if since_ms is None else now_ms - since_ms)
        (last_ms, last_total_ms), self._last = self._last, (now_ms, total_ms)
        if now_ms <= last_ms:
            return None
        return min(max((total_ms - last_total_ms) / (now_ms - last_ms), 0.0), 1.0)


class RebalanceMeasures:
    """The rebalances of a group's member, from the request to join or the first change to the end."""

    def __init__(self) -> None:
        self._began_ms: float | None = None
        self._latency = Sampled()
        self._total_ms = 0

    def begin(self, now_ms: float) -> None:
        """Record the start of a rebalance, unless one is in progress."""
        if self._began_ms is None:
            self._began_ms = now_ms

    def end(self, now_ms: float) -> None:
        """Record the end of the rebalance in progress, if any."""
        if self._began_ms is not None:
            latency_ms = now_ms - self._began_ms
            self._latency.record(latency_ms, now_ms)
            self._total_ms += round(latency_ms)
            self._began_ms = None

    def points(self, prefix: str, now_ms: float) -> Iterator[Point]:
        """Return the metrics."""
        yield from extremes(f"{prefix}.rebalance.latency", self._latency, now_ms)
        if self._total_ms:
            yield Point(f"{prefix}.rebalance.latency.total", self._total_ms, is_counter=True)


class ConsumerMeasures:
    """The waits of a consumer."""

    def __init__(self, now_ms: float) -> None:
        self.fetches = Sampled()
        self.commits = Sampled()
        self.rebalances = RebalanceMeasures()
        self.idle = IdleTime(now_ms)

    def points(self, prefix: str, now_ms: float, assigned: int, *, has_group: bool) -> Iterator[Point]:
        """Return the metrics. ``assigned`` is the number of assigned partitions."""
        if (ratio := self.idle.ratio(now_ms)) is not None:
            yield Point(f"{prefix}.poll.idle.ratio.avg", ratio)
        if has_group:
            yield from extremes(f"{prefix}.coordinator.commit.latency", self.commits, now_ms)
            yield Point(f"{prefix}.coordinator.assigned.partitions", assigned)
            yield from self.rebalances.points(f"{prefix}.coordinator", now_ms)
        yield from extremes(f"{prefix}.fetch.manager.fetch.latency", self.fetches, now_ms)


def extremes(name: str, values: Sampled, now_ms: float, attributes: Attributes = ()) -> Iterator[Point]:
    """Return the average and the maximum of recent values, none if there are none."""
    average, maximum = values.average(now_ms), values.maximum(now_ms)
    if average is not None and maximum is not None:
        yield Point(f"{name}.avg", average, attributes)
        yield Point(f"{name}.max", maximum, attributes)
