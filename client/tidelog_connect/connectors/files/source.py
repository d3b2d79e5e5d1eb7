"""FilesSource: the files of a folder as records, each file once."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidelog_connect.configuration import ConfigDef
from tidelog_connect.connectors.connector import Settings, SourceBatch, SourceConnector, SourceOffset
from tidelog_connect.connectors.files.file_plan import MODIFIED, SIZE, FilePlan, FileStatus, Limits, plan
from tidelog_connect.connectors.files.formats import FORMATS, check_installed, format_name
from tidelog_connect.connectors.files.listing import SourceFolder, source_folder
from tidelog_connect.connectors.files.source_settings import check, source_settings
from tidelog_connect.connectors.offsets import parsed_partition
from tidelog_connect.connectors.options import is_option, options_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

_FILENAME = "filename"


class FilesSourceConnector(SourceConnector):
    """Reads files that appear in a folder. The offset of a file says that it is read; a batch has whole files."""

    class_name = "io.tidelog.connect.files.FilesSourceConnector"
    task_class = "io.tidelog.connect.files.FilesSourceTask"

    @classmethod
    def config(cls) -> ConfigDef:
        """Return the settings of the source."""
        return source_settings()

    @classmethod
    def is_own(cls, key: str) -> bool:
        """Tell whether a setting is an option of Spark's reader."""
        return is_option(key)

    @classmethod
    def check(cls, settings: Settings) -> Mapping[str, str]:
        """Return the errors of settings that do not fit each other."""
        return check(settings)

    @classmethod
    def check_offset(cls, partition: Mapping[str, Any], offset: Mapping[str, Any] | None) -> None:
        """Check that the partition names a file, and that the offset has its size and time.

        Raises:
            ValueError: they do not.
        """
        if set(partition) != {_FILENAME} or not isinstance(partition[_FILENAME], str):
            raise ValueError(f"Partition objects should contain the single key '{_FILENAME}', a text")
        if offset is None:
            return
        numbers = [offset.get(name) for name in (MODIFIED, SIZE)]
        if set(offset) != {MODIFIED, SIZE} or any(type(each) is not int or each < 0 for each in numbers):
            raise ValueError(
                f"The offset of a file that is read should have its time '{MODIFIED}' in ms and its '{SIZE}' in bytes;"
                " reset the offset to read the file again"
            )

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._format = FORMATS[format_name(settings["format.class"])]
        self._pattern = re.compile(settings["input.file.pattern"])
        self._limits = Limits(
            settings["max.files.per.batch"], settings["max.bytes.per.batch"], settings["max.tracked.files"]
        )
        self._warned: set[str] = set()

    def poll(self, spark: SparkSession, position: Mapping[str, Mapping[str, Any]]) -> SourceBatch | None:
        """Return the rows of the next files, and clean up those of committed batches."""
        check_installed(spark, self._format)
        folder = source_folder(spark, self.settings["path"])
        known = {parsed_partition(key)[_FILENAME]: offset for key, offset in position.items()}
        found = self._plan(folder, known)
        self._clean(folder, found.clean)
        for each in found.changed:
            if each.path not in self._warned:
                self._warned.add(each.path)
                logger.warning("%s has changed since it was read, and is not read again", each.path)
        if not found.read and not found.forget:
            return None
        offsets = [SourceOffset({_FILENAME: path}, None) for path in found.forget]
        offsets += [SourceOffset({_FILENAME: each.path}, each.offset) for each in found.read]
        topic = self.settings["topic"]
        return SourceBatch(self._rows(spark, found.read), offsets, frozenset((topic,) if found.read else ()))

    def _plan(self, folder: SourceFolder, known: Mapping[str, Mapping[str, Any]]) -> FilePlan:
        listed = [
            each
            for each in folder.files(is_recursive=self.settings["input.path.walk.recursively"])
            if self._pattern.fullmatch(each.path.rpartition("/")[2])
        ]
        newest_ms = int(time.time() * 1000) - self.settings["file.minimum.age.ms"]
        cleans = self.settings["cleanup.policy"] != "NONE"
        return plan(listed, known, self._limits, cleans=cleans, newest_ms=newest_ms)

    def _clean(self, folder: SourceFolder, files: Sequence[FileStatus]) -> None:
        for each in files:
            if self.settings["cleanup.policy"] == "DELETE":
                folder.delete(each.path)
            else:
                folder.move(each.path, self.settings["finished.path"])

    def _rows(self, spark: SparkSession, files: Sequence[FileStatus]) -> DataFrame:
        from pyspark.sql import functions as sql

        from tidelog_connect.connectors.files.reading import FileReader

        topic = sql.lit(self.settings["topic"]).alias("topic")
        if not files:
            return spark.range(0).select(topic, sql.lit(None).cast("string").alias("value"))
        options = {**self._format.options, **options_of(self.settings)}
        reader = FileReader(spark, self._format.source, options, self.settings["schema"])
        paths = [each.path for each in files]
        skips = self.settings["errors.tolerance"] == "all"
        return reader.rows(paths, skips_bad=skips).select(topic, "value")
