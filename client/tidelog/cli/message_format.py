"""Turns messages into lines: kcat's ``%`` formats, or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from tidelog.message import Message

_TOKEN = re.compile(rb"%(.)|\\([nrt0\\])", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}
_FIELDS: dict[bytes, Callable[[Message], bytes]] = {
    b"t": lambda m: str(m.topic()).encode(),
    b"p": lambda m: str(m.partition()).encode(),
    b"o": lambda m: str(m.offset()).encode(),
    b"k": lambda m: m.key() or b"",
    b"v": lambda m: m.value() or b"",
    b"T": lambda m: str(m.timestamp()[1]).encode(),
    b"h": lambda m: ",".join(f"{name}={_text(value)}" for name, value in m.headers() or ()).encode(),
    b"%": lambda m: b"%",
}


def message_formatter(template: str) -> Callable[[Message], bytes]:
    """Return what turns a message into a line: ``json``, or text with %t %p %o %k %v %T %h, and \\n \\t as escapes.

    Raises:
        ValueError: a ``%`` is followed by a letter that stands for nothing.
    """
    if template == "json":
        return _json_line
    parts: list[bytes | Callable[[Message], bytes]] = []
    raw = template.encode()
    end = 0
    for match in _TOKEN.finditer(raw):
        parts.append(raw[end : match.start()])
        parts.append(_part(match))
        end = match.end()
    parts.append(raw[end:] + b"\n")
    return lambda message: b"".join(p if isinstance(p, bytes) else p(message) for p in parts)


def _part(match: re.Match[bytes]) -> bytes | Callable[[Message], bytes]:
    letter, escape = match.groups()
    if escape is not None:
        return _ESCAPES[escape]
    if letter not in _FIELDS:
        known = " ".join(f"%{name.decode()}" for name in _FIELDS)
        raise ValueError(f'"%{letter.decode(errors="replace")}" stands for nothing; there are {known}')
    return _FIELDS[letter]


def _json_line(message: Message) -> bytes:
    fields = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": _text(message.key()),
        "value": _text(message.value()),
        "headers": [[name, _text(value)] for name, value in message.headers() or ()],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")
