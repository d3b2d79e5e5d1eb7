"""The settings that every client shares, and the cluster client that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.cluster.addresses import parse_bootstrap_servers
from tidelog.cluster.client import ClusterClient
from tidelog.config import at_least, between, setting
from tidelog.errors import ConfigError

MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Where the cluster is, and how patient a client is with it."""

    bootstrap_servers: tuple[str, ...] = setting(
        doc="Nodes to ask for the cluster's metadata first, as host:port,host:port.",
        check=parse_bootstrap_servers,
        aliases=("metadata.broker.list",),
    )
    client_id: str = setting("tidelog", doc="Names this client to the nodes, in the user agent of its connections.")
    request_timeout_ms: int = setting(
        30_000, doc="How long one request may take before it counts as lost.", check=at_least(1)
    )
    retry_backoff_ms: int = setting(
        100, doc="The wait before the first retry; doubled for each further one.", check=at_least(1)
    )
    retry_backoff_max_ms: int = setting(1_000, doc="The longest wait between retries.", check=at_least(1))

    def cluster_client(self) -> ClusterClient:
        """Return a new client with these settings; it opens no connection before it is used."""
        return ClusterClient(
            self.bootstrap_servers,
            client_id=self.client_id,
            request_timeout_ms=self.request_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_max_ms=self.retry_backoff_max_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingConfig(ClientConfig):
    """What a client adds that keeps track of the leaders of its partitions."""

    metadata_max_age_ms: int = setting(
        300_000,
        doc="Metadata is asked for again after so long, also when all is well: new partitions are found so.",
        check=between(100, MAX_INT32),
        aliases=("topic.metadata.refresh.interval.ms",),
    )


def refuse_missing(settings: Mapping[str, object], missing: Mapping[str, str]) -> None:
    """Refuse settings of confluent-kafka's that need what is not there; ``missing`` says of each what that is.

    Raises:
        ConfigError: one is among ``settings``.
    """
    for key in settings:
        if key in missing:
            raise ConfigError(f'configuration "{key}" is not supported: {missing[key]}')
