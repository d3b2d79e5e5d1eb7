"""A Prometheus collector for the SDK's clients: the figures of ``stats_cb`` as metrics.

::

    from prometheus_client import start_http_server
    from tidelog.metrics import PrometheusCollector

    collector = PrometheusCollector()
    start_http_server(9200)
    producer = Producer(settings)
    collector.add(producer)

A scrape reads the clients; between scrapes, the collector costs nothing. It needs the extra ``metrics``.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tidelog_foundation.errors import KafkaException

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry
except ModuleNotFoundError as error:
    text = f"tidelog.metrics needs {error.name}: install tidelog[metrics]"
    raise ModuleNotFoundError(text, name=error.name) from error

_MICROSECONDS: Final = 1e-6


class Measured(Protocol):
    """A client of the SDK with statistics: a producer or a consumer."""

    def statistics(self) -> dict[str, Any]:
        """Return the figures of ``stats_cb``."""


@dataclass(frozen=True, slots=True)
class _Figure:
    """A metric and its field in the statistics. Counters end with ``_total``."""

    name: str
    help: str
    field: str


_OF_CLIENT: Final = (
    _Figure("requests_total", "Requests sent.", "tx"),
    _Figure("request_bytes_total", "Bytes of records in requests.", "tx_bytes"),
    _Figure("responses_total", "Responses received.", "rx"),
    _Figure("response_bytes_total", "Bytes of records in responses.", "rx_bytes"),
    _Figure("sent_records_total", "Records that nodes have acknowledged.", "txmsgs"),
    _Figure("sent_bytes_total", "Bytes of records that nodes have acknowledged.", "txmsg_bytes"),
    _Figure("received_records_total", "Records received.", "rxmsgs"),
    _Figure("received_bytes_total", "Bytes of records received.", "rxmsg_bytes"),
    _Figure("queued_records", "Records of a producer that no node has acknowledged.", "msg_cnt"),
    _Figure("queued_bytes", "Bytes of records that wait in the client.", "msg_size"),
    _Figure("pending_callbacks", "Callbacks and events that wait for the application.", "replyq"),
)
_OF_NODE: Final = (
    _Figure("node_requests_total", "Requests sent to a node.", "tx"),
    _Figure("node_errors_total", "Requests to a node that have failed.", "txerrs"),
    _Figure("node_retries_total", "Repeated requests to a node.", "txretries"),
    _Figure("node_waiting_requests", "Requests to a node without a response.", "waitresp_cnt"),
)
_OF_PARTITION: Final = (
    _Figure("partition_lag_records", "Committed records that a consumer has not consumed.", "consumer_lag"),
    _Figure("partition_committed_offset", "The committed offset of the consumer's group.", "committed_offset"),
)
_QUANTILES: Final = {"p50": "0.5", "p95": "0.95", "p99": "0.99"}


class PrometheusCollector(Collector):
    """Collects the metrics of clients, by default in prometheus-client's global registry. Thread-safe.

    The label ``client`` is the client id and a number, since clients may share an id. Closed and forgotten clients have
    no metrics. Partitions are those that a consumer is assigned.
    """

    def __init__(self, clients: Iterable[Measured] = (), registry: CollectorRegistry | None = REGISTRY) -> None:
        """Collect these clients. Without a registry, register the collector yourself."""
        self._numbers = itertools.count(1)
        self._clients: dict[int, weakref.ref[Measured]] = {}
        for client in clients:
            self.add(client)
        if registry is not None:
            registry.register(self)

    def add(self, client: Measured) -> None:
        """Collect a client until it is closed. A client that is collected already is not added again."""
        if not any(known() is client for known in list(self._clients.values())):
            self._clients[next(self._numbers)] = weakref.ref(client)

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not read the clients."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all clients."""
        families = _Families()
        for number, known in list(self._clients.items()):
            client = known()
            figures = None if client is None else _figures_of(client)
            if figures is None:
                self._clients.pop(number, None)
            else:
                _add(families, f"{figures['client_id']}-{number}", figures)
        yield from families.all()


class _Families:
    """The metric families of one scrape by name."""

    def __init__(self) -> None:
        self._known: dict[str, Metric] = {}

    def add(self, figure: _Figure, labels: Mapping[str, str], value: float) -> None:
        """Add a sample."""
        name = f"tidelog_sdk_{figure.name}"
        family = self._known.get(name)
        if family is None:
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = self._known[name] = kind(name, figure.help, labels=list(labels))
        family.add_metric(list(labels.values()), value)  # type: ignore[attr-defined]

    def add_round_trips(self, labels: Mapping[str, str], window: Mapping[str, float]) -> None:
        """Add the quantiles of the latest round trips to a node, in microseconds."""
        for field, quantile in _QUANTILES.items():
            if field in window:
                figure = _Figure("node_round_trip_seconds", "Quantiles of the latest round trips to a node.", field)
                self.add(figure, {**labels, "quantile": quantile}, window[field] * _MICROSECONDS)

    def all(self) -> Iterable[Metric]:
        """Return the families."""
        return self._known.values()


def _figures_of(client: Measured) -> dict[str, Any] | None:
    """Return a client's statistics, or None if it is closed."""
    try:
        return client.statistics()
    except KafkaException:
        return None


def _add(families: _Families, client: str, figures: Mapping[str, Any]) -> None:
    labels = {"client": client, "type": figures["type"]}
    for figure in _OF_CLIENT:
        if figure.field in figures:
            families.add(figure, labels, figures[figure.field])
    for node in figures["brokers"].values():
        of_node = {**labels, "node": str(node["nodeid"])}
        for figure in _OF_NODE:
            families.add(figure, of_node, node[figure.field])
        families.add_round_trips(of_node, node["rtt"])
    for topic in figures["topics"].values():
        for index, partition in topic["partitions"].items():
            of_partition = {**labels, "topic": topic["topic"], "partition": index}
            for figure in _OF_PARTITION:
                if partition.get(figure.field, -1) >= 0:
                    families.add(figure, of_partition, partition[figure.field])
