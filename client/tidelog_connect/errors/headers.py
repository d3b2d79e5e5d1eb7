"""The headers of records in a dead-letter topic, by which KIP-298 describes the error."""

from __future__ import annotations

from tidelog_connect.errors.tolerance import FailedRecord

_PREFIX = "__connect.errors."


def error_headers(record: FailedRecord, connector: str, task: int) -> list[tuple[str, bytes | None]]:
    """Return the headers, in Connect's order. They follow those of the record.

    The stack trace is the error alone: an expression that fails has no stack.
    """
    trace = f"{record.exception}: {record.message}" if record.message is not None else record.exception
    texts = {
        "topic": record.topic,
        "partition": _text(record.partition),
        "offset": _text(record.offset),
        "connector.name": connector,
        "task.id": str(task),
        "stage": record.stage,
        "class.name": record.executing_class,
        "exception.class.name": record.exception,
        "exception.message": record.message,
        "exception.stacktrace": trace,
    }
    return [(_PREFIX + name, None if text is None else text.encode()) for name, text in texts.items()]


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
