"""The lines of a server's log, whatever the texts of its peers."""

from __future__ import annotations

import io
import logging

import pytest

from tidelog_foundation.logs.lines import LogLines


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
