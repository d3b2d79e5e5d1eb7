"""Removes a partition's directory so that a crash half-way leaves nothing that looks like a partition."""

from __future__ import annotations

import uuid
from pathlib import Path

from tidelog_node.log.files import Files, storage_errors

DELETED_SUFFIX = "-delete"


def condemn_directory(files: Files, directory: Path) -> Path:
    """Rename ``topic-N`` to ``topic-N.<uuid>-delete``, durably; returns the new path. There may be none.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR.
    """
    condemned = directory.with_name(f"{directory.name}.{uuid.uuid4().hex}{DELETED_SUFFIX}")
    with storage_errors("Deleting", directory):
        try:
            files.rename(directory, condemned)
        except FileNotFoundError:
            return condemned
        files.fsync_directory(directory.parent)
    return condemned


def remove_directory(files: Files, condemned: Path) -> None:
    """Remove a condemned directory and its files.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR; :func:`remove_deleted` ends the work later.
    """
    with storage_errors("Deleting", condemned):
        _remove_all(files, condemned)


def delete_directory(files: Files, directory: Path) -> None:
    """Condemn and remove a directory.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR; if the rename was done, :func:`remove_deleted` ends the work later.
    """
    remove_directory(files, condemn_directory(files, directory))


def remove_deleted(files: Files, log_directory: Path) -> list[str]:
    """Remove the condemned directories that an earlier run left; returns their names.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR.
    """
    with storage_errors("Deleting from", log_directory):
        names = [name for name in files.listdir(log_directory) if name.endswith(DELETED_SUFFIX)]
        for name in names:
            _remove_all(files, log_directory / name)
    return names


def _remove_all(files: Files, directory: Path) -> None:
    try:
        names = files.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        files.remove(directory / name)
    files.rmdir(directory)
