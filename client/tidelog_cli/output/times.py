"""Parses times and durations of the command line. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHORT = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ISO = re.compile(
    r"(?P<sign>[+-])?P(?:(?P<d>[+-]?\d+)D)?"
    r"(?P<time>T(?:(?P<h>[+-]?\d+)H)?(?:(?P<m>[+-]?\d+)M)?(?:(?P<s>[+-]?\d+(?:\.\d{1,9})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)


def parse_time(text: str) -> int:
    """Return milliseconds since 1970 of ``2026-01-17T12:00:00.000`` (UTC without a zone) or of milliseconds.

    The formats are those of Kafka's ``Utils.getDateTime``. A date without a time means its midnight.

    Raises:
        ValueError: it is neither.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f'"{text}" is not a time such as 2026-01-17T12:00:00, nor milliseconds since 1970') from None
    since = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)) - _EPOCH
    return since.days * _UNITS_MS["d"] + since.seconds * 1_000 + since.microseconds // 1_000


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of ``90s``, ``5m``, ``1.5h``, ``7d`` or of ISO 8601's ``P1DT2H3M4.5S``.

    The latter as Java's ``Duration.parse``, which kafka-consumer-groups.sh uses: days to seconds, each with a sign.

    Raises:
        ValueError: it is neither.
    """
    short = _SHORT.fullmatch(text)
    if short is not None:
        return int(float(short[1]) * _UNITS_MS[short[2]])
    found = _ISO.fullmatch(text)
    parts = {unit: found[unit] for unit in "dhms" if found[unit]} if found else {}
    if found is None or not parts or (found["time"] or "").upper() == "T":
        raise ValueError(f'"{text}" is not a duration such as 90s, 1h, 7d or P1DT2H')
    total = sum(float(value) * _UNITS_MS[unit] for unit, value in parts.items())
    return int(-total if found["sign"] == "-" else total)


def time_text(timestamp_ms: int) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds; ``-`` for an invalid time."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1_000:03d}Z"
