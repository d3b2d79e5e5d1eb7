"""Error handling of connectors (KIP-298): retries, tolerance and dead-letter topics (pure)."""

from tidelog_connect.errors.settings import DEAD_LETTER_TOPIC, ERRORS_CONFIG, SINK_ERRORS_CONFIG, ErrorSettings
from tidelog_connect.errors.tolerance import (
    TOLERANCE_EXCEEDED,
    FailedRecord,
    Verdict,
    retry_delay_ms,
    verdict_on_failure,
)
