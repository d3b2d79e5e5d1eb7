"""The plan of a poll: which files of a folder are read next, cleaned up, and forgotten (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

MODIFIED, SIZE = "modified", "size"


class FileStatus(NamedTuple):
    """A file of a folder: its path, its size in bytes, and the time of its last change in ms since 1970."""

    path: str
    size: int
    modified: int

    @property
    def offset(self) -> dict[str, int]:
        """The offset that says that the file is read."""
        return {MODIFIED: self.modified, SIZE: self.size}


@dataclass(frozen=True, slots=True)
class Limits:
    """The most files and bytes in a batch (a file larger than that is one alone), and the most files remembered."""

    files: int
    bytes: int
    remembered: int


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The files of the next batch, those to clean up, those that have changed, and paths whose offsets are dropped."""

    read: Sequence[FileStatus]
    clean: Sequence[FileStatus]
    changed: Sequence[FileStatus]
    forget: Sequence[str]


def plan(
    listed: Iterable[FileStatus],
    known: Mapping[str, Mapping[str, Any]],
    limits: Limits,
    *,
    cleans: bool,
    newest_ms: int,
) -> FilePlan:
    """Return the plan for the files of a folder, given the offsets of files that are read.

    A file is known by its path. Where files are cleaned up (``cleans``), a known path that has another size or time is
    a new file, and one that is gone is forgotten. Otherwise a file that changes is not read again, and files that are
    gone are forgotten, the oldest first, only when there are too many: a folder that seems empty for a while, such as
    one that is not mounted, makes no file new. Files that are newer than ``newest_ms`` are left for later.

    Raises:
        ValueError: the folder has more files than can be remembered.
    """
    present = {each.path: each for each in listed}
    same = {path for path, each in present.items() if path in known and dict(known[path]) == each.offset}
    changed = [each for path, each in present.items() if path in known and path not in same]
    clean = [present[path] for path in sorted(same)] if cleans else []
    new = [each for path, each in present.items() if path not in known] + (changed if cleans else [])
    ready = sorted((each for each in new if each.modified <= newest_ms), key=lambda each: (each.modified, each.path))
    read = _within(ready, limits)
    gone = [path for path in known if path not in present]
    if cleans:
        return FilePlan(read, clean, (), sorted(gone))
    excess = len(known) + len(read) - limits.remembered
    forget = sorted(gone, key=lambda path: (int(known[path][MODIFIED]), path))[: max(0, excess)]
    if excess > len(gone):
        raise ValueError(
            f"The folder has {len(present)} files, and max.tracked.files is {limits.remembered}: remove files that are"
            " read, set cleanup.policy, or raise max.tracked.files"
        )
    return FilePlan(read, (), changed, forget)


def _within(ready: Sequence[FileStatus], limits: Limits) -> list[FileStatus]:
    chosen: list[FileStatus] = []
    size = 0
    for each in ready[: limits.files]:
        size += each.size
        if chosen and size > limits.bytes:
            break
        chosen.append(each)
    return chosen
