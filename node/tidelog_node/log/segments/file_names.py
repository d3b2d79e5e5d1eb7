"""The names of a segment's files: the base offset in 20 digits, a suffix for the content, and a suffix for the state.

The suffix of the state comes last: ``.cleaned`` while a cleaner writes the file, ``.swap`` when it replaces other
segments, ``.deleted`` while it waits for its removal.
"""

from __future__ import annotations

import re
from pathlib import Path

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_FILE_SUFFIX = ".deleted"

_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex)(\.cleaned|\.swap)?")


def segment_name(base_offset: int, suffix: str) -> str:
    """Return the name of a segment's file: the base offset in 20 digits and the suffix."""
    return f"{base_offset:020d}{suffix}"


class SegmentPaths:
    """The paths of one segment's files; ``state`` is the suffix of their state, "" for the files of a log."""

    __slots__ = ("base_offset", "directory", "state")

    def __init__(self, directory: Path, base_offset: int, state: str) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.state = state

    def of(self, suffix: str) -> Path:
        """Return the path of the file with a suffix."""
        return self.directory / segment_name(self.base_offset, suffix + self.state)


def parse_segment_name(name: str) -> tuple[int, str, str] | None:
    """Return base offset, suffix and state suffix ("" for none) of a segment's file; None for any other name."""
    match = _SEGMENT_FILE.fullmatch(name)
    return (int(match[1]), match[2], match[3] or "") if match else None


def deleted_name(path: Path) -> Path:
    """Return the path of a file after its deletion."""
    return path.with_name(path.name + DELETED_FILE_SUFFIX)
