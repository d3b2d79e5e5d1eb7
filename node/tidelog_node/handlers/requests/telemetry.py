"""Requests about the metrics of clients: GetTelemetrySubscriptions and PushTelemetry (KIP-714)."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class GetTelemetrySubscriptionsRequest:
    """A request for the metrics to push. A client without an instance id sends 16 zero bytes, or none."""

    client_instance_id: bytes = b""
    client_software_name: str = ""
    client_software_version: str = ""


@dataclass(frozen=True, slots=True)
class GetTelemetrySubscriptionsResponse:
    """The metrics to push, by prefixes of their names. Nothing is pushed without any; an empty prefix means all."""

    client_instance_id: bytes
    subscription_id: int
    accepted_compression_types: tuple[int, ...]
    """Kafka's numbers, the preferred one first; 0, no compression, is always accepted."""
    push_interval_ms: int
    telemetry_max_bytes: int
    delta_temporality: bool
    """True if counters are pushed as the differences since the last push."""
    requested_metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PushTelemetryRequest:
    """The metrics of a client, OpenTelemetry's MetricsData; ``terminating`` with its last push."""

    client_instance_id: bytes = b""
    subscription_id: int = 0
    terminating: bool = False
    compression_type: int = 0
    metrics: bytes = b""
    client_software_name: str = ""
    client_software_version: str = ""


@dataclass(frozen=True, slots=True)
class PushTelemetryResponse:
    """The push was taken."""
