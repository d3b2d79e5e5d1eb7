"""The exports that OpenTelemetry's environment variables ask for (pure).

The OpenTelemetry specification, "Environment Variable Specification" and "OTLP Exporter Configuration", defines the
variables. OpenTelemetry's SDK reads those that are not here: endpoints, headers, certificates, timeouts, compression,
the resource, the sampler, and the limits of the queue of spans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tidelog_foundation.dataclass import dataclass

GRPC: Final = "grpc"
HTTP: Final = "http/protobuf"
_PROTOCOLS: Final = (GRPC, HTTP)
_OTLP: Final = "otlp"
_NONE: Final = "none"
_DEFAULT_INTERVAL_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Exports:
    """The exports of a process, and their protocols. Without a protocol, a signal is not exported."""

    metrics: str | None = None
    """The protocol of metrics: ``grpc`` or ``http/protobuf``."""
    traces: str | None = None
    """The protocol of traces."""
    interval_ms: int = _DEFAULT_INTERVAL_MS
    """The time between two exports of metrics."""
    refused: tuple[str, ...] = ()
    """The errors of the variables, as sentences."""

    @property
    def are_any(self) -> bool:
        """True if a signal is exported."""
        return self.metrics is not None or self.traces is not None


def requested_exports(environment: Mapping[str, str]) -> Exports:
    """Return the exports that the variables of an environment ask for. As specified, an empty one counts as not set."""
    given = {name: value.strip() for name, value in environment.items() if name.startswith("OTEL_") and value.strip()}
    if given.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return Exports()
    refused: list[str] = []
    protocols = [_protocol_of(signal, given, refused) for signal in ("METRICS", "TRACES")]
    interval_ms = _DEFAULT_INTERVAL_MS
    if protocols[0] is not None:
        interval_ms = _interval_ms(given, refused)
        refused += _ignored(given)
    return Exports(protocols[0], protocols[1], interval_ms, tuple(dict.fromkeys(refused)))


def _protocol_of(signal: str, given: Mapping[str, str], refused: list[str]) -> str | None:
    if not _is_requested(signal, given, refused):
        return None
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = given.get(name)
        if protocol in _PROTOCOLS:
            return protocol
        if protocol is not None:
            refused.append(f"{name} is {protocol!r}, which must be one of {', '.join(_PROTOCOLS)}")
            return None
    return GRPC


def _is_requested(signal: str, given: Mapping[str, str], refused: list[str]) -> bool:
    name = f"OTEL_{signal}_EXPORTER"
    if name not in given:
        return "OTEL_EXPORTER_OTLP_ENDPOINT" in given or f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT" in given
    exporters = {exporter.strip() for exporter in given[name].split(",")}
    unknown = sorted(exporters - {_OTLP, _NONE})
    if unknown:
        refused.append(f"{name} has {', '.join(map(repr, unknown))}; only {_OTLP} and {_NONE} are supported")
    return _OTLP in exporters


def _interval_ms(given: Mapping[str, str], refused: list[str]) -> int:
    name = "OTEL_METRIC_EXPORT_INTERVAL"
    text = given.get(name, str(_DEFAULT_INTERVAL_MS))
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    refused.append(f"{name} is {text[:20]!r}, which must be a number of milliseconds above 0; it counts as 60000")
    return _DEFAULT_INTERVAL_MS


def _ignored(given: Mapping[str, str]) -> Iterator[str]:
    name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
    if given.get(name, "cumulative").lower() != "cumulative":
        yield f"{name} is {given[name]!r}; metrics are always cumulative"
