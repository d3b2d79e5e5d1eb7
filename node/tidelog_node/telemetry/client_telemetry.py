"""A node's receiver of client metrics (KIP-714): it applies the rules, reads pushes in a thread, and exports them."""

from __future__ import annotations

import base64
import logging
import uuid
from collections import Counter
from collections.abc import Iterable
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_node.event_loop import Clock, DecodingThread
from tidelog_node.partitions import MetadataCache
from tidelog_node.telemetry.instances import ClientInstance, ClientInstances
from tidelog_node.telemetry.otlp import points_of
from tidelog_node.telemetry.pushed import PushedSeries
from tidelog_node.telemetry.subscriptions import ClientFacts, Subscribed, Subscription, compiled, subscribed

logger = logging.getLogger(__name__)
COMPRESSIONS: Final = (4, 3, 1, 2)
"""The compression types that pushes may have, the preferred one first: zstd, lz4, gzip, snappy."""
NO_ID: Final = bytes(16)
"""The id of a client without one."""
_RESERVED_IDS: Final = (NO_ID, bytes(15) + b"\x01")
_LABELS: Final = ("client_id", "client_instance_id", "metric", "attributes")
_KAFKA: Final = "kafka.server:type=client-metrics"

COUNTERS: Final = Metric(
    "tidelog_client_metric_total",
    Kind.COUNTER,
    "The counters that clients have pushed to this node (KIP-714), by their own names.",
    labels=_LABELS,
)
GAUGES: Final = Metric(
    "tidelog_client_metric_value",
    Kind.GAUGE,
    "The other metrics that clients have pushed to this node (KIP-714), by their own names.",
    labels=_LABELS,
)
INSTANCES: Final = Metric(
    "tidelog_client_telemetry_instances",
    Kind.GAUGE,
    "The client instances that this node knows by their requests for subscriptions to metrics (KIP-714).",
    kafka=(f"{_KAFKA}: instance-count",),
)
SERIES: Final = Metric(
    "tidelog_client_telemetry_series",
    Kind.GAUGE,
    "The series of the metrics that clients have pushed.",
)
PUSHES: Final = Metric(
    "tidelog_client_telemetry_pushes_total",
    Kind.COUNTER,
    "The pushes of clients by their result: NONE, or Kafka's name of the error.",
    labels=("result",),
    kafka=(
        f"{_KAFKA}: plugin-export-count",
        f"{_KAFKA}: throttle-count",
        f"{_KAFKA}: unknown-subscription-request-count",
    ),
)
DROPPED: Final = Metric(
    "tidelog_client_telemetry_dropped_values_total",
    Kind.COUNTER,
    "The pushed values that are not exported because of metrics.client.instances.max or metrics.client.series.max.",
)
METRICS: Final = (COUNTERS, GAUGES, INSTANCES, SERIES, PUSHES, DROPPED)


@dataclass(slots=True)
class ClientSoftware:
    """The software of a client, as it names itself, and the port that it connects from."""

    name: str = "unknown"
    version: str = "unknown"
    port: int = 0


@dataclass(frozen=True, slots=True)
class ClientOrigin:
    """The origin of a request."""

    client_id: str
    address: str
    software: ClientSoftware

    def facts(self, instance_id: bytes) -> ClientFacts:
        """Return the facts that subscriptions match."""
        software = self.software
        name = id_text(instance_id)
        return ClientFacts(name, self.client_id, software.name, software.version, self.address, str(software.port))


@dataclass(frozen=True, slots=True)
class TelemetryLimits:
    """The size of a push in bytes, compressed or not, and the exported client instances and series."""

    max_bytes: int
    max_clients: int
    max_series: int


class ClientTelemetry:
    """The client metrics of one node, on its event loop."""

    def __init__(
        self,
        metadata: MetadataCache,
        clock: Clock,
        decoding: DecodingThread,
        limits: TelemetryLimits,
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._decoding = decoding
        self.max_bytes = limits.max_bytes
        self._instances = ClientInstances()
        self._series = PushedSeries(limits.max_clients, limits.max_series)
        self._results: Counter[tuple[str]] = Counter()
        self._seen: object = None
        self._settings: dict[str, dict[str, str]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0

    def subscriptions_of(self, instance_id: bytes, origin: ClientOrigin) -> tuple[bytes, Subscribed]:
        """Return the id of a client's instance, a new one for zeros, with the subscriptions that apply to it.

        Raises:
            TidelogError: THROTTLING_QUOTA_EXCEEDED, the client asks too early.
        """
        own_id = uuid.uuid4().bytes if instance_id == NO_ID else instance_id
        instance = self._instance(own_id, origin)
        instance.get(self._clock.monotonic_ms())
        return own_id, instance.subscribed

    async def push(
        self,
        instance_id: bytes,
        subscription_id: int,
        origin: ClientOrigin,
        compression: int,
        metrics: bytes,
        *,
        is_terminating: bool,
    ) -> None:
        """Take the metrics of a client.

        Raises:
            TidelogError: INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID,
                UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE, INVALID_RECORD.
        """
        try:
            if instance_id in _RESERVED_IDS:
                raise error_for(ErrorCode.INVALID_REQUEST, f"{id_text(instance_id)} is no client instance id")
            instance = self._instance(instance_id, origin)
            try:
                await self._take(instance, subscription_id, compression, metrics, is_terminating)
            except TidelogError as error:
                instance.last_error = error.code
                raise
            instance.last_error = ErrorCode.NONE
        except TidelogError as error:
            self._results[(error.code.name,)] += 1
            raise
        self._results[(ErrorCode.NONE.name,)] += 1

    def families(self) -> Iterable[Family]:
        """Return the pushed metrics and the counts of the pushes."""
        self._sweep()
        counters: dict[tuple[str, ...], float] = {}
        gauges: dict[tuple[str, ...], float] = {}
        for series in self._series:
            labels = series.client_id, series.client_instance_id, series.metric, series.attributes
            (counters if series.is_counter else gauges)[labels] = series.value
        yield COUNTERS.of(counters)
        yield GAUGES.of(gauges)
        yield INSTANCES.of(len(self._instances))
        yield SERIES.of(self._series.number)
        yield PUSHES.of(self._results)
        yield DROPPED.of(self._series.dropped)

    async def _take(
        self, instance: ClientInstance, subscription_id: int, compression: int, metrics: bytes, is_terminating: bool
    ) -> None:
        now_ms = self._clock.monotonic_ms()
        instance.push(subscription_id, is_terminating=is_terminating, now_ms=now_ms)
        if compression and compression not in COMPRESSIONS:
            text = f"there is no compression type {compression}"
            raise error_for(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
        if len(metrics) > self.max_bytes:
            text = f"the metrics have {len(metrics)} bytes, telemetry.max.bytes is {self.max_bytes}"
            raise error_for(ErrorCode.TELEMETRY_TOO_LARGE, text)
        if metrics:
            points = await self._decoding.run_in_thread(lambda _: points_of(compression, metrics, self.max_bytes))
            facts = instance.facts
            self._series.add(facts.client_id, facts.client_instance_id, points)

    def _instance(self, instance_id: bytes, origin: ClientOrigin) -> ClientInstance:
        """Return a client's instance with the current subscriptions."""
        self._follow()
        self._sweep()
        now_ms = self._clock.monotonic_ms()
        instance = self._instances.find(instance_id)
        if instance is None or instance.version != self._version:
            facts = origin.facts(instance_id) if instance is None else instance.facts
            mine = subscribed(self._subscriptions.values(), facts, instance_id)
            was_terminating = instance is not None and instance.is_terminating
            instance = ClientInstance(facts, mine, self._version, is_terminating=was_terminating)
            for displaced in self._instances.put(instance_id, instance):
                self._series.forget(id_text(displaced))
        instance.use(now_ms)
        return instance

    def _sweep(self) -> None:
        for expired in self._instances.sweep(self._clock.monotonic_ms()):
            self._series.forget(id_text(expired))

    def _follow(self) -> None:
        """Compile the subscriptions again if they have changed in the metadata."""
        configs = self._metadata.image.configs
        if configs is self._seen:
            return
        self._seen = configs
        settings = {r.name: dict(own) for r, own in configs.items() if r.type is ConfigResourceType.CLIENT_METRICS}
        if settings == self._settings:
            return
        self._settings = settings
        self._version += 1
        self._subscriptions, errors = compiled(settings)
        for name, error in errors.items():
            logger.warning("The subscription %s to client metrics applies to nobody: %s", name, error.message)


def id_text(instance_id: bytes) -> str:
    """Return Kafka's text of an instance id, URL-safe Base64."""
    return base64.urlsafe_b64encode(instance_id).decode().rstrip("=")
