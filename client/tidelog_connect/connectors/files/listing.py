"""The files of a source's folder: their listing, removal and renaming, on a local disk or by Hadoop."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tidelog_connect.connectors.files.file_plan import FileStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"(?:file:(?://)?)?(/.*|(?![a-z][a-z0-9+.-]+:).*)", re.IGNORECASE)
_HIDDEN = ("_", ".")


class SourceFolder(Protocol):
    """A folder of files, which it names by their paths."""

    def files(self, *, is_recursive: bool) -> Iterator[FileStatus]:
        """Yield the files whose names, and those of their folders, do not begin with an underscore or a dot.

        Raises:
            OSError: the folder does not exist.
        """
        ...

    def delete(self, path: str) -> None:
        """Delete a file."""
        ...

    def move(self, path: str, folder: str) -> None:
        """Move a file into a folder, under its name."""
        ...


def source_folder(spark: SparkSession, path: str) -> SourceFolder:
    """Return the folder of a path or URI."""
    match = _LOCAL.fullmatch(path)
    return LocalFolder(match[1]) if match is not None else HadoopFolder(spark, path)


class LocalFolder:
    """A folder on the disk of the worker."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)

    def files(self, *, is_recursive: bool) -> Iterator[FileStatus]:
        """Yield the files of the folder."""
        folders = [self._path]
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.name.startswith(_HIDDEN):
                        continue
                    if entry.is_dir():
                        if is_recursive:
                            folders.append(entry.path)
                        continue
                    try:
                        found = entry.stat()
                    except FileNotFoundError:
                        continue
                    yield FileStatus(entry.path, found.st_size, found.st_mtime_ns // 1_000_000)

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        Path(path).unlink(missing_ok=True)

    def move(self, path: str, folder: str) -> None:
        """Move a file into a folder, which is created."""
        target = Path(os.path.abspath(folder))
        target.mkdir(parents=True, exist_ok=True)
        os.replace(path, target / Path(path).name)


class HadoopFolder:
    """A folder on a file system of Hadoop."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._path: Any = jvm.org.apache.hadoop.fs.Path
        self._top = self._path(path)
        self._files = self._top.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    def files(self, *, is_recursive: bool) -> Iterator[FileStatus]:
        """Yield the files of the folder."""
        folders = [self._top]
        while folders:
            for status in self._files.listStatus(folders.pop()):
                path = status.getPath()
                if path.getName().startswith(_HIDDEN):
                    continue
                if status.isDirectory():
                    if is_recursive:
                        folders.append(path)
                    continue
                yield FileStatus(path.toString(), status.getLen(), status.getModificationTime())

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        self._files.delete(self._path(path), False)

    def move(self, path: str, folder: str) -> None:
        """Move a file into a folder, which is created.

        Raises:
            OSError: the file system refuses.
        """
        source, goal = self._path(path), self._path(folder)
        self._files.mkdirs(goal)
        target = self._path(goal, source.getName())
        self._files.delete(target, False)
        if not self._files.rename(source, target):
            raise OSError(f"{path} could not be moved to {folder}")
