"""`FileStore`: the operations on a folder that the commit of a batch needs, and their implementation by Hadoop."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"


class FileStore(Protocol):
    """A folder of files, which names them by paths relative to it, with slashes."""

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of the files and folders in a folder; none if it does not exist."""
        ...

    def files_below(self, folder: str) -> Sequence[str]:
        """Return the paths of all files below a folder, relative to that folder."""
        ...

    def create(self, path: str, text: str) -> bool:
        """Create a file with its whole text in one step. Return False if it exists already."""
        ...

    def read(self, path: str) -> str:
        """Return the text of a file."""
        ...

    def move(self, path: str, target: str) -> None:
        """Move a file in one step, into a folder that is created. Do nothing if it is not there any more."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all below it, if it exists."""
        ...


class HadoopStore:
    """A folder on a file system of Hadoop."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._rename_option = getattr(jvm.org.apache.hadoop.fs, "Options$Rename")
        self._configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
        self._root = jvm.org.apache.hadoop.fs.Path(root)
        self._files = self._root.getFileSystem(self._configuration)

    def url(self, path: str) -> str:
        """Return the URI of a path."""
        return str(self._files.makeQualified(self._path(path)).toString())

    def names(self, folder: str) -> Sequence[str]:
        """Return the names in a folder."""
        path = self._path(folder)
        if not self._files.exists(path):
            return ()
        return [status.getPath().getName() for status in self._files.listStatus(path)]

    def files_below(self, folder: str) -> Sequence[str]:
        """Return the paths of all files below a folder."""
        top = self._files.makeQualified(self._path(folder))
        base = top.toString().rstrip("/") + "/"
        found = []
        entries = self._files.listFiles(top, True)
        while entries.hasNext():
            found.append(entries.next().getPath().toString().removeprefix(base))
        return found

    def create(self, path: str, text: str) -> bool:
        """Create a file by a rename that never overwrites."""
        from py4j.protocol import Py4JJavaError

        target = self._files.makeQualified(self._path(path))
        temporary = self._jvm.org.apache.hadoop.fs.Path(target.getParent(), f".{target.getName()}.{uuid.uuid4().hex}")
        stream = self._files.create(temporary, True)
        stream.write(text.encode())
        stream.close()
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(target.toUri(), self._configuration)
        try:
            context.rename(temporary, target, self._gateway.new_array(self._rename_option, 0))
        except Py4JJavaError as error:
            self._files.delete(temporary, False)
            if error.java_exception.getClass().getName() == _EXISTS:
                return False
            raise
        return True

    def read(self, path: str) -> str:
        """Return the text of a file."""
        stream = self._files.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def move(self, path: str, target: str) -> None:
        """Move a file by a rename.

        Raises:
            OSError: the file system refuses.
        """
        source, goal = self._path(path), self._path(target)
        if not self._files.exists(source):
            return
        self._files.mkdirs(goal.getParent())
        if not self._files.rename(source, goal) and self._files.exists(source):
            raise OSError(f"{self.url(path)} could not be moved to {self.url(target)}")

    def delete(self, path: str) -> None:
        """Delete a file or folder."""
        self._files.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root
