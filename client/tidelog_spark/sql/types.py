"""The grammar of Spark's types in a column list. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokens import Token

from tidelog_spark.sql.errors import SqlError
from tidelog_spark.sql.tokens import tokenize

_WORDS = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "VARIANT")
_NAMES = {
    **{name: name for name in (*_WORDS, "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")},
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "BYTES": "BINARY",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
"""Spark's names of types without parameters, and the name that stands for each."""
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_MAX_DEPTH = 50
_MAX_PRECISION = 38


def parse_type(tokens: Sequence[Token], start: int) -> tuple[str, int]:
    """Return the type that begins at a token, in Spark's notation, and the index behind it.

    Raises:
        SqlError: there is none.
    """
    reader = _TypeReader(tokens, start)
    return reader.read(0), reader.next


def normal_type(text: str) -> str:
    """Return a type in the notation of definitions.

    Raises:
        SqlError: it is not a type.
    """
    tokens = tokenize(text)
    found, behind = parse_type(tokens, 0)
    if behind < len(tokens):
        raise SqlError(f"{text} is not a type of Spark: {tokens[behind].text} follows {found}")
    return found


class _TypeReader:
    def __init__(self, tokens: Sequence[Token], start: int) -> None:
        self._tokens = tokens
        self.next = start

    def read(self, depth: int) -> str:
        name = self._take().upper()
        if depth > _MAX_DEPTH:
            raise SqlError(f"a type is nested deeper than {_MAX_DEPTH} levels")
        if name in _NAMES:
            return _NAMES[name]
        if name in _DECIMALS:
            return self._decimal()
        if name == "ARRAY":
            self._expect("<", name)
            element = self.read(depth + 1)
            self._expect(">", name)
            return f"ARRAY<{element}>"
        if name == "MAP":
            self._expect("<", name)
            key = self.read(depth + 1)
            self._expect(",", name)
            value = self.read(depth + 1)
            self._expect(">", name)
            return f"MAP<{key}, {value}>"
        if name == "STRUCT":
            return self._struct(depth)
        raise SqlError(f"{name or 'nothing'} is not a type of Spark, such as STRING, BIGINT or ARRAY<INT>")

    def _struct(self, depth: int) -> str:
        self._expect("<", "STRUCT")
        fields: list[str] = []
        while True:
            name = self._take()
            self._skip(":")
            fields.append(f"{quoted_if_needed(name)}: {self.read(depth + 1)}")
            if not self._skip(","):
                break
        self._expect(">", "STRUCT")
        return f"STRUCT<{', '.join(fields)}>"

    def _decimal(self) -> str:
        if not self._skip("("):
            return "DECIMAL(10, 0)"
        precision = self._number("the precision of DECIMAL", 1, _MAX_PRECISION)
        scale = self._number("the scale of DECIMAL", 0, precision) if self._skip(",") else 0
        self._expect(")", "DECIMAL")
        return f"DECIMAL({precision}, {scale})"

    def _number(self, name: str, least: int, most: int) -> int:
        text = self._take()
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise SqlError(f"{name} is {text or 'missing'}; it is from {least} to {most}")
        return int(text)

    def _take(self) -> str:
        if self.next >= len(self._tokens):
            return ""
        self.next += 1
        return self._tokens[self.next - 1].text

    def _skip(self, text: str) -> bool:
        if self.next < len(self._tokens) and self._tokens[self.next].text == text:
            self.next += 1
            return True
        return False

    def _expect(self, text: str, of: str) -> None:
        if not self._skip(text):
            found = self._tokens[self.next].text if self.next < len(self._tokens) else "the end"
            raise SqlError(f"the type {of} needs {text}, found {found}")


def quoted_if_needed(name: str) -> str:
    """Return a name as Spark SQL has it: in backticks unless it is a plain word."""
    is_plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    return name if is_plain else quoted(name)


def quoted(name: str) -> str:
    """Return a name in backticks."""
    return f"`{name.replace('`', '``')}`"


def string_literal(text: str) -> str:
    """Return a string of Spark SQL with this text."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
