"""The answers of the monitoring port."""

from __future__ import annotations

from typing import Final

from tidelog_foundation.dataclass import dataclass

_TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a request."""

    status: str
    content: bytes
    content_type: str = _TEXT


def text_answer(status: str, text: str) -> Answer:
    """Return an answer of one or more lines."""
    return Answer(status, text.encode() + b"\n")
