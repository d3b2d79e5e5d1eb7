"""The current span of a program as the metadata of its calls: ``traceparent`` and ``tracestate`` of W3C Trace Context.

A program without OpenTelemetry pays for one look-up.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any, Final

_TRACE: Final = "opentelemetry.trace"
_PROPAGATE: Final = "opentelemetry.propagate"


def trace_metadata() -> tuple[tuple[str, str], ...]:
    """Return the metadata of the current span, empty if the program has none.

    ``OTEL_PROPAGATORS`` determines its form. A task that outlives the span in which it began, as that of a client's
    background work, sends nothing of it.
    """
    trace: Any = sys.modules.get(_TRACE)
    if trace is None:
        return ()
    span = trace.get_current_span()
    context = span.get_span_context()
    has_ended = context.trace_flags.sampled and not span.is_recording() and not context.is_remote
    if not context.is_valid or has_ended:
        return ()
    propagate = importlib.import_module(_PROPAGATE)
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return tuple(_lower_case(carrier).items())


def _lower_case(carrier: Mapping[str, str]) -> dict[str, str]:
    # The names of a call's metadata have lower-case letters.
    return {name.lower(): value for name, value in carrier.items()}
