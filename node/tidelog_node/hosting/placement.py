"""Choice of the log directory in which a replica's log is opened, or created if that cannot lose records.

A log is opened where its folder is. The node creates a replica without a folder only by these rules:

- It creates none while the replica's log may be in an offline log directory: the one that the metadata names or, for a
  replica that was never assigned, any one, unless its partition is new.
- It does not create the last in-sync replica if the assigned directory is missing on this node.

A new log goes to the directory that an operator prefers, else to the assigned one, else to the one with the fewest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import UNASSIGNED_DIRECTORY, DirectoryId
from tidelog_node.hosting.commands import OpenLog


@dataclass(frozen=True, slots=True)
class Candidate:
    """An online log directory; ``has_folder`` says that it has the replica's folder."""

    path: Path
    id: DirectoryId
    replicas: int
    has_folder: bool


def place(wanted: OpenLog, candidates: Sequence[Candidate], failed: Collection[Path]) -> Path:
    """Return the log directory for a replica; ``failed`` are the offline directories of ``log.dirs``.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR, the replica must not be created; without a cause, unlike a disk's refusal.
    """
    holding = next((c.path for c in candidates if c.has_folder), None)
    if holding is not None:
        return holding
    assigned = next((c.path for c in candidates if c.id == wanted.assigned), None)
    refusal = _refusal(wanted, candidates, failed, is_assigned_here=assigned is not None)
    if refusal is not None:
        raise refusal
    if wanted.preferred in [c.path for c in candidates]:
        assert wanted.preferred is not None
        return wanted.preferred
    return assigned or min(candidates, key=lambda c: c.replicas).path


def _refusal(
    wanted: OpenLog, candidates: Sequence[Candidate], failed: Collection[Path], *, is_assigned_here: bool
) -> TidelogError | None:
    is_assigned = wanted.assigned != UNASSIGNED_DIRECTORY
    is_unknown = not is_assigned and wanted.is_in_sync and not wanted.is_new
    is_missing = is_assigned and not is_assigned_here
    if not candidates or (failed and (is_unknown or is_missing)):
        paths = ", ".join(map(str, failed))
        text = f"its log may be in a log directory that is offline: {paths}"
    elif is_missing and wanted.is_in_sync:
        text = f"it is the last in-sync replica, and its log directory {wanted.assigned.hex()} is not in log.dirs"
    else:
        return None
    return error_for(ErrorCode.KAFKA_STORAGE_ERROR, text)
