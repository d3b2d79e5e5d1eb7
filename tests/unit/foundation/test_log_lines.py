"""The lines of a server's log, whatever the texts of its peers."""

from __future__ import annotations

import io
import json
import logging

import pytest

from tidelog_foundation.logs.lines import JsonLines, LogLines
from tidelog_foundation.logs.request_id import MAX_LENGTH, begin_request, end_request


@pytest.fixture
def log() -> tuple[logging.Logger, io.StringIO]:
    written, logger = io.StringIO(), logging.Logger("of.test")
    handler = logging.StreamHandler(written)
    handler.setFormatter(LogLines())
    logger.addHandler(handler)
    return logger, written


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\x1b[2Jb", "a\x85b", "a\u2028b", "a\x00b"])
def test_message_cannot_begin_another_line_or_control_a_terminal(
    log: tuple[logging.Logger, io.StringIO], text: str
) -> None:
    logger, written = log
    logger.warning("a client says %s", text)
    [line] = written.getvalue().splitlines()
    assert line.endswith(f"WARNING of.test a client says {ascii(text)[1:-1]}")


def test_traceback_cannot_look_like_a_line_of_the_log(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    try:
        raise ValueError("x\n2026-01-01 00:00:00,000 ERROR tidelog forged")
    except ValueError:
        logger.exception("failed")
    first, *rest = written.getvalue().splitlines()
    assert first.endswith("ERROR of.test failed")
    assert all(line.startswith("    ") for line in rest)


def test_text_in_another_script_stays_readable(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    logger.info("ä 日本")
    assert written.getvalue().rstrip("\n").endswith("ä 日本")


class Named:
    def __init__(self, request_id: str) -> None:
        self._request_id = request_id

    def request_id(self) -> str:
        return self._request_id


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("rdkafka/17", "rdkafka/17"),
        ("a] ERROR forged\n2026 x", "a__ERROR_forged_2026_x"),
        ("x" * 1_000, "x" * MAX_LENGTH),
        ("日本/1", "__/1"),
    ],
)
def test_lines_of_a_request_have_its_id_which_cannot_forge_or_fill_a_line(
    log: tuple[logging.Logger, io.StringIO], given: str, shown: str
) -> None:
    logger, written = log
    token = begin_request(Named(given))
    try:
        logger.warning("text")
    finally:
        end_request(token)
    logger.warning("later")
    first, second = written.getvalue().splitlines()
    assert first.endswith(f"WARNING of.test text [{shown}]")
    assert second.endswith("WARNING of.test later")


def test_line_in_json_has_the_id_of_the_request() -> None:
    record = logging.LogRecord("of.test", logging.INFO, "", 0, "text", (), None)
    token = begin_request(Named("rdkafka/17"))
    try:
        fields = json.loads(JsonLines().format(record))
    finally:
        end_request(token)
    assert fields["request_id"] == "rdkafka/17"
    assert "request_id" not in json.loads(JsonLines().format(record))
