"""`SqlError`, and the one sentence of a Spark error that helps its reader. Pure."""

from __future__ import annotations

import re

from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError

_CONDITION = re.compile(
    r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]\s*(.+?)(?=\s*SQLSTATE:|\n\n|\n\s*at |\n'|\n==|\s\[[A-Z]|\Z)", re.DOTALL
)
_POSITION = re.compile(r"\(?\bline (\d+),? pos(?:ition)? (\d+)\)?")
_PYTHON = re.compile(r"^(?:[a-z_]\w*\.)*([A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_FOR_DEVELOPERS = re.compile(r" (?:If necessary set|Set|To disable|Use) \"?spark\.sql\.ansi\.enabled.*", re.DOTALL)
_WRAPPERS = ("STREAM_FAILED", "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR", "PYTHON_DATA_SOURCE_ERROR")
"""Conditions that only say that another error stands behind them."""


class SqlError(TidelogError):
    """A statement that cannot run. Its text names the place, the value and the rule."""

    def __init__(self, text: str) -> None:
        super().__init__(KafkaError(ErrorCode._INVALID_ARG, text))


def spark_sentence(text: str) -> str:
    """Return the sentence of a Spark error that names its cause, with the position in the statement.

    ``text`` is the message of an exception of Spark: an error of analysis, or of a task with the stack traces of Java
    and Python. The cause is the last error of Python in it, if there is one, as this is an error of the source or sink;
    else the first condition.
    """
    from_python = [found[2] for found in _PYTHON.finditer(text) if not found[1].startswith(("Py4J", "Spark"))]
    if from_python:
        return from_python[-1].strip()
    conditions = [found for found in _CONDITION.finditer(text) if found[1] not in _WRAPPERS]
    if not conditions:
        return text.strip().partition("\n")[0]
    sentence = _FOR_DEVELOPERS.sub("", " ".join(conditions[0][2].split()))
    return sentence if _POSITION.search(sentence) else position_in(text) + sentence


def position_in(text: str) -> str:
    """Return the position that the message of an exception names, as ``line 1, position 14: ``, or an empty text."""
    position = _POSITION.search(text)
    return "" if position is None else f"line {position[1]}, position {int(position[2]) + 1}: "
