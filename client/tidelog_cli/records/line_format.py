"""Converts lines to records: values, keys and headers as in kafka-console-producer.sh, or JSON. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

Headers = tuple[tuple[str, bytes | None], ...]

_HEADERS_SEPARATOR = b","
_HEADER_SEPARATOR = b":"


class InvalidLineError(ValueError):
    """A line that is not a valid record; the text says why."""


@dataclass(frozen=True, slots=True)
class ProducedRecord:
    """A record to send: ``partition`` -1 for any, ``timestamp_ms`` 0 for now."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int = -1
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The format of a line. A separator is empty if lines have no such part.

    ``[headers headers_delimiter] [key key_separator] value``; headers are ``name:value,name:value``. The key, headers
    and partition here apply to lines without their own.
    """

    is_json: bool = False
    key: bytes | None = None
    key_separator: bytes = b""
    headers: Headers = ()
    headers_delimiter: bytes = b""
    has_tombstones: bool = False
    partition: int = -1

    def __call__(self, line: bytes) -> ProducedRecord:
        """Return the record of a line without its end; raise InvalidLineError."""
        return self._of_json(line) if self.is_json else self._of_text(line)

    def _of_text(self, line: bytes) -> ProducedRecord:
        headers = self.headers
        if self.headers_delimiter:
            text, found, line = line.partition(self.headers_delimiter)
            if not found:
                raise InvalidLineError(f"there is no {self.headers_delimiter.decode()!r} behind the headers")
            headers = (*headers, *_parse_headers(text))
        key, value = self.key, line
        if self.key_separator:
            before, found, after = line.partition(self.key_separator)
            if found:
                key, value = before, after
        is_null = self.has_tombstones and not value
        return ProducedRecord(None if is_null else value, key, headers, self.partition)

    def _of_json(self, line: bytes) -> ProducedRecord:
        try:
            found = json.loads(line)
        except ValueError as error:
            raise InvalidLineError(f"it is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise InvalidLineError("it is not a JSON object")
        headers = found.get("headers") or ()
        if not isinstance(headers, list | tuple) or not all(isinstance(h, list) and len(h) == 2 for h in headers):
            raise InvalidLineError(f"headers must be a list of [name, value], not {headers!r}")
        value = _bytes(found.get("value"))
        return ProducedRecord(
            None if self.has_tombstones and not value else value,
            _bytes(found.get("key")) if found.get("key") is not None else self.key,
            (*self.headers, *((str(name), _bytes(value)) for name, value in headers)),
            self.partition,
        )


def _parse_headers(text: bytes) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for item in text.split(_HEADERS_SEPARATOR) if text else ():
        name, found, value = item.partition(_HEADER_SEPARATOR)
        if not found or not name:
            raise InvalidLineError(f"the header {item.decode(errors='replace')!r} is not name:value")
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers)


def _bytes(value: Any) -> bytes | None:
    """Return a JSON value as a record's bytes: a string as it is, anything else as JSON."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()
