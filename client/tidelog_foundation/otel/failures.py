"""The log lines about exports: one when they begin to fail, one when they succeed again.

OpenTelemetry's own lines about each attempt are at DEBUG here. Its error, or else its first warning, is the reason that
our line states.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from tidelog_foundation.logs.limit import LogLimit

logger = logging.getLogger(__name__)
_LIBRARY: Final = "opentelemetry"
_NO_REASONS: Final = ("Shutdown in progress", "Exporter already shutdown")
"""The lines about attempts that our own stop has ended."""
_EXPORTERS: Final = ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal")


class LibraryLines(logging.Handler):
    """Receives the lines of OpenTelemetry's loggers from :meth:`install` to :meth:`remove`."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = LogLimit(logger, time.monotonic)
        self._was_propagating = True
        self._reasons = threading.local()
        self._latest = "no reason is known"

    def install(self) -> None:
        """Take the lines over from the process's own handlers."""
        library = logging.getLogger(_LIBRARY)
        self._was_propagating, library.propagate = library.propagate, False
        library.addHandler(self)
        # At INFO, the library reports the spans that end after its own end.
        library.setLevel(max(library.level, logging.WARNING))

    def remove(self) -> None:
        """Leave the lines to the process's handlers again."""
        library = logging.getLogger(_LIBRARY)
        library.removeHandler(self)
        library.propagate = self._was_propagating

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line of an exporter at DEBUG, and any other one at its own level, ten of them in ten seconds."""
        message = record.getMessage()
        if record.name.startswith(_EXPORTERS):
            if not message.startswith(_NO_REASONS):
                self._latest = message
                if record.levelno >= logging.ERROR or getattr(self._reasons, "text", None) is None:
                    self._reasons.text = message
            logger.debug("%s", message)
        else:
            self._limit.log(record.levelno, "OpenTelemetry: %s", message)

    def take_reason(self) -> str:
        """Return the reason of the failed export in this thread, and forget it."""
        reason: str | None = getattr(self._reasons, "text", None)
        self.forget_reason()
        # Of equal lines of several threads, the library writes one in twenty seconds.
        return reason or self._latest

    def forget_reason(self) -> None:
        """Forget why attempts of this thread have failed, since one has succeeded."""
        self._reasons.text = None


class ExportState:
    """Whether the exports of one signal succeed. It is used in the thread that exports."""

    def __init__(self, signal: str, lines: LibraryLines) -> None:
        self._signal = signal
        self._lines = lines
        self.is_failing = False

    def succeeded(self) -> None:
        """Record a successful export."""
        if self.is_failing:
            logger.info("The %s of this process are exported by OTLP again", self._signal)
        self.is_failing = False
        self._lines.forget_reason()

    def failed(self, reason: str | None = None) -> None:
        """Record a failed export, by default for the reason that the library has logged."""
        reason = reason or self._lines.take_reason()
        if not self.is_failing:
            logger.warning("The %s of this process are not exported by OTLP: %s", self._signal, reason)
        self.is_failing = True
