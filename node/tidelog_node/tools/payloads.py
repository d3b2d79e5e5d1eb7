"""Keys and values as text."""

from __future__ import annotations

import enum
import json


class PayloadFormat(enum.StrEnum):
    """The format of shown bytes. ``auto`` is text if all of it is printable, otherwise hex."""

    AUTO = "auto"
    TEXT = "text"
    HEX = "hex"
    JSON = "json"


def shown(data: bytes | None, payload_format: PayloadFormat) -> str | None:
    """Return bytes as one line of text, or None for None. Invalid JSON is shown as with ``auto``."""
    if data is None:
        return None
    match payload_format:
        case PayloadFormat.TEXT:
            return data.decode(errors="backslashreplace")
        case PayloadFormat.HEX:
            return data.hex()
        case PayloadFormat.JSON:
            return _json(data)
        case PayloadFormat.AUTO:
            return _printable(data)


def _printable(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else f"0x{data.hex()}"


def _json(data: bytes) -> str:
    try:
        return json.dumps(json.loads(data), ensure_ascii=False, separators=(",", ":"))
    except ValueError:
        return _printable(data)
