"""The lines of a server's log. A text of a peer in a message, such as a name, cannot end its line or begin another."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, TypeAlias

from tidelog_foundation.logs.request_id import current_request_id

_LINE: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
_CONTROL: Final = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
"""Control characters, and Unicode's separators of lines and paragraphs."""
_ESCAPES: Final = {code: ascii(chr(code))[1:-1] for code in _CONTROL}
_INDENT: Final = "    "
_ExceptionInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class LogLines(logging.Formatter):
    """Escapes control characters in messages, and indents tracebacks, whose errors may have texts of peers too."""

    def __init__(self) -> None:
        super().__init__(_LINE)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the line of a record, without its traceback."""
        line = super().formatMessage(record).translate(_ESCAPES)
        request_id = current_request_id()
        return f"{line} [{request_id}]" if request_id else line

    def formatException(self, ei: _ExceptionInfo) -> str:  # noqa: N802
        """Return an indented traceback."""
        return "\n".join(_INDENT + line.translate(_ESCAPES) for line in super().formatException(ei).split("\n"))


class JsonLines(logging.Formatter):
    """Writes each record as one line with a JSON object.

    Its fields are time (ISO 8601, UTC), level, logger, message, request_id and exception.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        time = datetime.fromtimestamp(record.created, UTC)
        fields = {
            "time": f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1_000:03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := current_request_id():
            fields["request_id"] = request_id
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)
