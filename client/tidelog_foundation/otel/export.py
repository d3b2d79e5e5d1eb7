"""The beginning of a process's exports by OTLP, if the environment asks for them.

Invalid variables and a missing library are errors in the log. They do not keep the process from serving.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Protocol

from tidelog_foundation.metrics import Family
from tidelog_foundation.otel.environment import requested_exports
from tidelog_foundation.otel.request_traces import RequestTraces

logger = logging.getLogger(__name__)


class Export(Protocol):
    """The exports of a process."""

    @property
    def traces(self) -> RequestTraces | None:
        """The traces of requests, if they are exported."""

    def start(self, collect: Callable[[], list[Family]]) -> None:
        """Begin to export metrics, which ``collect`` reads in a thread."""

    def stop(self) -> None:
        """Export what is left, and end. It blocks for a few seconds at most."""


def open_export(
    service: str, attributes: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> Export | None:
    """Return the exports of a process, or None if there are none. Imports take about half a second.

    ``service`` is its ``service.name``, and ``attributes`` are further ones of its resource.
    """
    exports = requested_exports(environment)
    for text in exports.refused:
        logger.error("OpenTelemetry: %s", text)
    if not exports.are_any:
        return None
    try:
        from tidelog_foundation.otel.library import OtelExport
    except ImportError as error:
        text = "The environment asks for OpenTelemetry, but nothing is exported: %s; pip install 'tidelog[otel]'"
        logger.error(text, error)  # the traceback of an import helps nobody
        return None
    try:
        export = OtelExport(exports, service, attributes)
    except (ImportError, OSError, TypeError, ValueError) as error:
        logger.error("OpenTelemetry: nothing is exported: %s", error)
        return None
    signals = {"metrics": exports.metrics, "traces": exports.traces}
    named = " and ".join(f"{signal} by {protocol}" for signal, protocol in signals.items() if protocol is not None)
    logger.info("OpenTelemetry: this process exports %s", named)
    return export
