"""The metrics of a node's cluster links. A cluster has at most 100 links, each of which is a label."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_node.links.cluster_links import ClusterLinks

MIRRORS: Final = Metric(
    "tidelog_link_mirror_partitions",
    Kind.GAUGE,
    "The mirror partitions that this node leads. Those in the state failing could not be fetched at the last attempt.",
    labels=("link", "state"),
)
LAG: Final = Metric(
    "tidelog_link_max_lag_records",
    Kind.GAUGE,
    "The largest lag of a mirror partition that this node leads: the records that the source has committed and the "
    "mirror has not, as of the source's last answer.",
    unit="records",
    labels=("link",),
)
FETCHED: Final = Metric(
    "tidelog_link_fetched_bytes_total",
    Kind.COUNTER,
    "The bytes of records that this node has fetched over a link since the link's last start on it.",
    unit="bytes",
    labels=("link",),
)
FAILURES: Final = Metric(
    "tidelog_link_fetch_failures_total",
    Kind.COUNTER,
    "The failed fetches of this node over a link, of partitions or whole requests, since the link's last start on it.",
    labels=("link",),
)
METRICS: Final = (MIRRORS, LAG, FETCHED, FAILURES)


class LinkMetrics:
    """Reads the metrics of a node's links."""

    def __init__(self, links: ClusterLinks) -> None:
        self._links = links

    def families(self) -> Iterator[Family | None]:
        """Yield the metrics."""
        states: dict[tuple[str, str], float] = {}
        lags: dict[tuple[str], float] = {}
        fetched: dict[tuple[str], float] = {}
        failures: dict[tuple[str], float] = {}
        for worker in self._links.workers:
            name, mirrors = worker.link.name, list(worker.mirrors.values())
            failing = sum(mirror.error is not None for mirror in mirrors)
            states[name, "failing"], states[name, "copying"] = failing, len(mirrors) - failing
            lags[(name,)] = max((mirror.lag for mirror in mirrors), default=0)
            fetched[(name,)] = worker.counts.records_bytes
            failures[(name,)] = worker.counts.failures
            yield None
        yield MIRRORS.of(states)
        yield LAG.of(lags)
        yield FETCHED.of(fetched)
        yield FAILURES.of(failures)
