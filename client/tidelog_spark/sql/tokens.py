"""Splits a text into the tokens of Spark's SQL. Pure."""

from __future__ import annotations

from typing import ClassVar

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType

from tidelog_spark.sql.errors import SqlError


class _Tokenizer(Spark.Tokenizer):
    # sqlglot does not look into statements such as SHOW and EXPLAIN.
    COMMANDS: ClassVar[set[TokenType]] = set()


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a text.

    Raises:
        SqlError: a string, a quoted name or a comment does not end.
    """
    try:
        return _Tokenizer().tokenize(text)
    except TokenError as error:
        raise SqlError("a string, a quoted name or a comment does not end") from error
