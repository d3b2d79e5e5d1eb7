"""FilesSink without Spark: the commit of batches under crashes, folders named by dates, and settings."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_connect.configuration import ConfigException
from tidelog_connect.connectors.connector import Batch
from tidelog_connect.connectors.files.batch_commit import INTERNAL, commit_batch
from tidelog_connect.connectors.files.formats import format_name
from tidelog_connect.connectors.files.path_format import DateFolder, date_folders
from tidelog_connect.connectors.files.sink import place
from tidelog_connect.connectors.registry import Registry

SINK = {"name": "files", "connector.class": "FilesSink", "topics": "t", "path": "/x", "format.class": "ParquetFormat"}


class Crash(Exception):
    """The end of the process."""


class MemoryStore:
    """A store in memory, which fails at a given call, as a process that is killed before it."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.calls_left: int | None = None

    def step(self) -> None:
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise Crash

    def names(self, folder: str) -> list[str]:
        self.step()
        return sorted({path[len(folder) + 1 :].split("/")[0] for path in self.files if path.startswith(folder + "/")})

    def files_below(self, folder: str) -> list[str]:
        self.step()
        return sorted(path[len(folder) + 1 :] for path in self.files if path.startswith(folder + "/"))

    def create(self, path: str, text: str) -> bool:
        self.step()
        return self.files.setdefault(path, text) is text

    def read(self, path: str) -> str:
        self.step()
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def move(self, path: str, target: str) -> None:
        self.step()
        if path in self.files:
            assert target not in self.files
            self.files[target] = self.files.pop(path)

    def delete(self, path: str) -> None:
        self.step()
        for each in [each for each in self.files if each == path or each.startswith(path + "/")]:
            del self.files[each]

    def visible(self) -> list[str]:
        return sorted(text for path, text in self.files.items() if not path.startswith(INTERNAL))


def write(store: MemoryStore, number: int, attempt: str, rows: list[str], files: int) -> bool:
    """Write rows as so many files, for attempts may divide them otherwise."""
    batch = Batch("query", number)

    def stage(folder: str) -> Mapping[str, str]:
        places = {}
        for index in range(files):
            store.step()
            path = f"t/{index}.json"
            store.files[f"{folder}/{path}"] = " ".join(rows[index::files])
            places[path] = f"t/part-{number}-{index}.json"
        return places

    return commit_batch(store, batch, attempt, stage)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30)), min_size=1, max_size=12))
def test_files_have_each_row_once_wherever_attempts_are_killed(attempts: list[tuple[int, int]]) -> None:
    store, number, written = MemoryStore(), 0, 0
    batches = [[f"{batch}.{row}" for row in range(4)] for batch in range(len(attempts) + 1)]
    for index, (files, calls) in enumerate(attempts):
        store.calls_left = calls
        try:
            assert write(store, number, f"a{index}", batches[number], files)
            number += 1
        except Crash:
            pass
        seen = " ".join(store.visible()).split()
        assert len(seen) == len(set(seen))
        assert set(seen) >= {row for batch in batches[:number] for row in batch}
        written = number
    store.calls_left = None
    assert write(store, written, "last", batches[written], 2)
    seen = " ".join(store.visible()).split()
    assert sorted(seen) == sorted(row for batch in batches[: written + 1] for row in batch)
    assert [path for path in store.files if path.startswith(INTERNAL)] == [f"{INTERNAL}/query/{written}.json"]


@given(st.data())
def test_replaced_run_adds_nothing_whenever_it_wakes_up(data: st.DataObject) -> None:
    """A run stops at any step of batch 0, another writes batches 0 and 1, and the first goes on."""
    store = MemoryStore()
    pause = data.draw(st.integers(1, 14))
    count = 0

    class Paused(MemoryStore):
        def step(self) -> None:
            nonlocal count
            count += 1
            if count == pause:
                assert write(store, 0, "new", ["a", "b", "c"], 2)
                assert write(store, 1, "new", ["d"], 1)

    old = Paused()
    old.files = store.files
    # Its manifest may be gone when it wants to read it.
    with contextlib.suppress(FileNotFoundError):
        write(old, 0, "old", ["a", "b", "c"], 3)
    if count < pause:
        assert write(store, 1, "new", ["d"], 1)
    write(store, 2, "new", ["e"], 1)
    assert sorted(" ".join(store.visible()).split()) == ["a", "b", "c", "d", "e"]
    assert [path for path in store.files if path.startswith(INTERNAL)] == [f"{INTERNAL}/query/2.json"]


def test_files_that_readers_have_removed_do_not_come_back() -> None:
    store = MemoryStore()
    write(store, 0, "a", ["x"], 1)
    del store.files["t/part-0-0.json"]
    assert write(store, 0, "b", ["x"], 1)
    assert store.visible() == []


def test_folders_of_dates_have_prefixes_and_patterns() -> None:
    assert date_folders("'year'=YYYY/'month'=MM") == [DateFolder("year=", "yyyy"), DateFolder("month=", "MM")]
    assert date_folders("'at'_HH'h'mm") == [DateFolder("at_", "HH'h'mm")]
    assert date_folders("yyyy-MM-dd") == [DateFolder("", "yyyy'-'MM'-'dd")]


@pytest.mark.parametrize(
    ("path_format", "text"),
    [
        ("'year=YYYY", "A quote is not closed"),
        ("YYYY/'x'", "Each folder must have a letter"),
        ("YYYY//MM", "Each folder must have a letter"),
        ("ww", "The letter w is none of"),
        ("'a/b'=YYYY", "A quoted text has a slash"),
    ],
)
def test_path_formats_without_meaning_are_refused(path_format: str, text: str) -> None:
    with pytest.raises(ConfigException, match=text):
        date_folders(path_format)


def test_formats_have_the_names_of_confluents_classes_too() -> None:
    assert format_name("io.confluent.connect.s3.format.parquet.ParquetFormat") == "ParquetFormat"
    assert format_name("json") == "JsonFormat"
    with pytest.raises(ConfigException, match="one of: ParquetFormat"):
        format_name("io.example.ParquetFormat")


def test_place_keeps_escapes_of_values_and_drops_those_of_dates() -> None:
    path = "_l0=orders/_l1=a%2Fb/_l2=x%3D1/part-0.c000.json"
    assert place(path, ["", "c=", ""], "p.json") == "orders/c=a%2Fb/x=1/p.json"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"format.class": "XmlFormat"}, "String must be one of"),
        ({"flush.size": "0"}, "at least 1"),
        ({"timezone": "Mars"}, "Must be a time zone"),
        ({"partitioner.class": "FieldPartitioner"}, "requires partition.field.name"),
        ({"partitioner.class": "TimeBasedPartitioner"}, "requires path.format"),
        ({"partitioner.class": "TimeBasedPartitioner", "path.format": "ww"}, "The letter w"),
        ({"partitioner.class": "DailyPartitioner", "timestamp.extractor": "RecordField"}, "requires timestamp.field"),
        ({"partitioner.class": "DailyPartitioner", "format.class": "DeltaFormat"}, "DeltaFormat takes"),
        (
            {"partitioner.class": "DailyPartitioner", "format.class": "IcebergFormat"},
            "DailyPartitioner requires RecordField",
        ),
        (
            {"partitioner.class": "TimeBasedPartitioner", "path.format": "YYYY", "format.class": "IcebergFormat"},
            "or DailyPartitioner and HourlyPartitioner by a field",
        ),
        ({"path": ""}, "path is required without iceberg.catalog"),
        ({"iceberg.namespace": "raw"}, "requires iceberg.catalog"),
        ({"iceberg.catalog": "lake", "path": ""}, "the format is ParquetFormat"),
        ({"iceberg.catalog": "lake", "format.class": "IcebergFormat"}, "remove path"),
        ({"option.path": "/y"}, "Unknown configuration option.path"),
        ({"flush.sise": "1"}, "did you mean flush.size"),
    ],
)
def test_settings_of_files_that_do_not_fit_are_errors(settings: dict[str, str], text: str) -> None:
    errors = Registry.installed("1").errors({**SINK, **settings})
    assert len(errors) == 1
    assert text in errors[0]


def test_settings_of_files_are_valid() -> None:
    by_class = {"partitioner.class": "io.confluent.connect.storage.partitioner.HourlyPartitioner"}
    assert Registry.installed("1").errors({**SINK, **by_class, "option.compression": "zstd"}) == []
