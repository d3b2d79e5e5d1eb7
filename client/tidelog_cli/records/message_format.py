"""Converts messages to lines: the ``%`` formats of kcat and rpk, selected parts, or JSON. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

from tidelog.message import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message
from tidelog_cli.output.times import time_text

ToLine = Callable[[Message], bytes]

_TOKEN = re.compile(rb"%(.)|\\([nrt0\\]|x[0-9a-fA-F]{2})", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}
_TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}


def _size(value: bytes | None) -> bytes:
    return b"-1" if value is None else str(len(value)).encode()


def _header_text(message: Message) -> bytes:
    return ",".join(f"{name}={_text(value)}" for name, value in message.headers() or ()).encode()


_FIELDS: dict[bytes, Callable[[Message], bytes]] = {
    b"t": lambda m: str(m.topic()).encode(),
    b"p": lambda m: str(m.partition()).encode(),
    b"o": lambda m: str(m.offset()).encode(),
    b"e": lambda m: str(-1 if m.leader_epoch() is None else m.leader_epoch()).encode(),
    b"k": lambda m: m.key() or b"",
    b"K": lambda m: _size(m.key()),
    b"v": lambda m: m.value() or b"",
    b"V": lambda m: _size(m.value()),
    b"s": lambda m: m.value() or b"",
    b"S": lambda m: _size(m.value()),
    b"T": lambda m: str(m.timestamp()[1]).encode(),
    b"d": lambda m: time_text(m.timestamp()[1]).encode(),
    b"h": _header_text,
    b"H": lambda m: str(len(m.headers() or ())).encode(),
    b"%": lambda m: b"%",
}


def message_formatter(template: str) -> ToLine:
    r"""Return a formatter: ``json``, or text with fields such as %o and escapes such as \t.

    %t topic, %p partition, %o offset, %e leader epoch, %k key, %v or %s value, %K and %V or %S their sizes (-1 for
    null), %T timestamp in ms, %d the same as ISO 8601, %h headers, %H their number, %%; \n \r \t \0 \\ \xhh.

    Raises:
        ValueError: the letter after a ``%`` is not a field.
    """
    if template == "json":
        return _json_line
    parts: list[bytes | ToLine] = []
    raw = template.encode()
    end = 0
    for match in _TOKEN.finditer(raw):
        parts.append(raw[end : match.start()])
        parts.append(_part(match))
        end = match.end()
    parts.append(raw[end:] + b"\n")
    return lambda message: b"".join(p if isinstance(p, bytes) else p(message) for p in parts)


def parts_formatter(shown: Iterable[str], separator: str) -> ToLine:
    """Return a formatter that prints the named parts before the value, as kafka-console-consumer.sh does.

    Parts are ``timestamp``, ``partition``, ``offset``, ``headers`` and ``key``; their order is Kafka's.
    """
    wanted = set(shown)
    between = separator.encode()
    parts = [part for name, part in _PARTS.items() if name in wanted]
    return lambda message: between.join((*(part(message) for part in parts), _or_null(message.value()))) + b"\n"


def _timestamp_part(message: Message) -> bytes:
    kind, timestamp_ms = message.timestamp()
    name = _TIMESTAMP_TYPES.get(kind)
    return b"NO_TIMESTAMP" if name is None else f"{name}:{timestamp_ms}".encode()


def _headers_part(message: Message) -> bytes:
    found = message.headers()
    if not found:
        return b"NO_HEADERS"
    return b",".join(name.encode() + b":" + _or_null(value) for name, value in found)


def _or_null(value: bytes | None) -> bytes:
    return b"null" if value is None else value


_PARTS: dict[str, ToLine] = {
    "timestamp": _timestamp_part,
    "partition": lambda m: f"Partition:{m.partition()}".encode(),
    "offset": lambda m: f"Offset:{m.offset()}".encode(),
    "headers": _headers_part,
    "key": lambda m: _or_null(m.key()),
}


def _part(match: re.Match[bytes]) -> bytes | ToLine:
    letter, escape = match.groups()
    if escape is not None:
        return bytes.fromhex(escape[1:].decode()) if escape.startswith(b"x") else _ESCAPES[escape]
    if letter not in _FIELDS:
        known = " ".join(f"%{name.decode()}" for name in _FIELDS)
        raise ValueError(f'"%{letter.decode(errors="replace")}" is not a field; the fields are {known}')
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
