"""Removes a partition's directory so that a crash half-way leaves nothing that looks like a partition."""

from __future__ import annotations

import logging
from pathlib import Path

from tidelog_foundation.errors import TidelogError
from tidelog_node.log.directory.folder_names import DELETED_SUFFIX, suffixed_folder
from tidelog_node.log.disk.disk_errors import is_disk_failure
from tidelog_node.log.disk.files import Files, storage_errors

logger = logging.getLogger(__name__)


def rename_for_deletion(files: Files, directory: Path) -> Path:
    """Rename ``topic-N`` to ``topic-N.<uuid>-delete``, durably, and return the new path. The directory may be missing.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR.
    """
    renamed = directory.with_name(suffixed_folder(directory.name, DELETED_SUFFIX))
    with storage_errors("Deleting", directory):
        try:
            files.rename(directory, renamed)
        except FileNotFoundError:
            return renamed
        files.fsync_directory(directory.parent)
    return renamed


def remove_directory(files: Files, renamed: Path) -> None:
    """Remove a renamed directory and its files.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR; :func:`remove_deleted` completes the removal later.
    """
    with storage_errors("Deleting", renamed):
        _remove_all(files, renamed)


def delete_directory(files: Files, directory: Path) -> None:
    """Rename a directory and remove it.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR; if the rename was done, :func:`remove_deleted` completes the removal later.
    """
    remove_directory(files, rename_for_deletion(files, directory))


def remove_deleted(files: Files, log_directory: Path) -> list[str]:
    """Remove the ``-delete`` directories that an earlier run left, and return the names of those removed.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR, the disk failed. Directories that it only refuses to remove stay until the
            next start.
    """
    removed = []
    with storage_errors("Deleting from", log_directory):
        names = [name for name in files.listdir(log_directory) if name.endswith(DELETED_SUFFIX)]
    for name in names:
        try:
            remove_directory(files, log_directory / name)
        except TidelogError as error:
            if is_disk_failure(error):
                raise
            logger.error("The next start removes a deleted replica: %s", error.message)
        else:
            removed.append(name)
    return removed


def _remove_all(files: Files, directory: Path) -> None:
    try:
        names = files.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        files.remove(directory / name)
    files.rmdir(directory)
