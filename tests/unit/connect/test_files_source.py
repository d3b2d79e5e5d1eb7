"""FilesSource without Spark: the plan of a poll, local folders, offsets and settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_connect.connectors.files.file_plan import FileStatus, Limits, plan
from tidelog_connect.connectors.files.listing import LocalFolder, source_folder
from tidelog_connect.connectors.files.source import FilesSourceConnector
from tidelog_connect.connectors.registry import Registry

CONFIG = {"name": "in", "connector.class": "FilesSource", "path": "/in", "format.class": "CsvFormat", "topic": "t"}
LIMITS = Limits(files=3, bytes=100, remembered=10)


def files(*names: str, size: int = 1, modified: int = 5) -> list[FileStatus]:
    return [FileStatus(name, size, modified) for name in names]


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans(), st.integers(0, 60)), max_size=40),
    st.booleans(),
)
def test_each_file_is_read_once_and_the_offsets_are_bounded(steps: list[tuple[str, bool, int]], cleans: bool) -> None:
    """Files appear and vanish; each step commits a batch. A file with another time is another file if it is cleaned."""
    present: dict[str, FileStatus] = {}
    known: dict[str, dict[str, int]] = {}
    read: list[tuple[str, int]] = []
    for time, (name, appears, size) in enumerate(steps):
        if not appears:
            present.pop(name, None)
        elif name not in present:
            present[name] = FileStatus(name, size, time)
        found = plan(present.values(), known, LIMITS, cleans=cleans, newest_ms=time)
        for each in found.clean:
            assert present.pop(each.path) == each
        for path in found.forget:
            del known[path]
        known |= {each.path: each.offset for each in found.read}
        read += [(each.path, each.modified) for each in found.read]
        assert len(known) <= LIMITS.remembered
        assert len(found.read) <= LIMITS.files
    assert len(read) == len(set(read))
    if not cleans:
        assert len(read) == len({path for path, _ in read})
    left = plan(present.values(), known, LIMITS, cleans=cleans, newest_ms=len(steps))
    assert {each.path for each in left.read} <= set(present)


def test_files_are_read_by_their_age_within_the_limits() -> None:
    listed = [*files("b", "a", modified=2), *files("c", modified=1), *files("d", modified=9)]
    found = plan(listed, {}, LIMITS, cleans=False, newest_ms=5)
    assert [each.path for each in found.read] == ["c", "a", "b"]
    large = [FileStatus("l", 500, 1), FileStatus("m", 90, 2), FileStatus("n", 90, 3)]
    assert [each.path for each in plan(large, {}, LIMITS, cleans=False, newest_ms=5).read] == ["l"]
    assert [each.path for each in plan(large[1:], {}, LIMITS, cleans=False, newest_ms=5).read] == ["m"]


def test_files_that_are_gone_are_remembered_while_there_is_room() -> None:
    known = {f"old{index}": {"modified": index, "size": 1} for index in range(9)}
    assert plan([], known, LIMITS, cleans=False, newest_ms=9).forget == []
    found = plan(files("x", "y", "z"), known, LIMITS, cleans=False, newest_ms=9)
    assert list(found.forget) == ["old0", "old1"]
    present = [FileStatus(path, 1, offset["modified"]) for path, offset in known.items()]
    with pytest.raises(ValueError, match=r"has 12 files, and max\.tracked\.files is 10"):
        plan([*present, *files("x", "y", "z")], known, LIMITS, cleans=False, newest_ms=9)


def test_file_that_changes_is_new_only_where_files_are_cleaned_up() -> None:
    known = {"a": {"modified": 1, "size": 1}}
    changed = FileStatus("a", 2, 2)
    assert plan([changed], known, LIMITS, cleans=False, newest_ms=9).changed == [changed]
    assert plan([changed], known, LIMITS, cleans=False, newest_ms=9).read == []
    assert plan([changed], known, LIMITS, cleans=True, newest_ms=9).read == [changed]
    same = FileStatus("a", 1, 1)
    assert plan([same], known, LIMITS, cleans=True, newest_ms=9).clean == [same]


def test_local_folder_lists_moves_and_deletes(tmp_path: Path) -> None:
    for name in ("a.csv", ".b.csv", "_c.csv", "in/d.csv", "_in/e.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (1, 1.5))
    folder = source_folder(None, f"file://{tmp_path}")  # type: ignore[arg-type]
    assert isinstance(folder, LocalFolder)
    assert list(folder.files(is_recursive=False)) == [FileStatus(str(tmp_path / "a.csv"), 1, 1500)]
    assert len(list(folder.files(is_recursive=True))) == 2
    folder.move(str(tmp_path / "a.csv"), str(tmp_path / "done/now"))
    folder.delete(str(tmp_path / "in/d.csv"))
    assert [each.path for each in folder.files(is_recursive=True)] == [str(tmp_path / "done/now/a.csv")]
    with pytest.raises(FileNotFoundError):
        list(LocalFolder(str(tmp_path / "none")).files(is_recursive=True))


@pytest.mark.parametrize("offset", [{}, {"modified": 1}, {"modified": 1, "size": "1"}, {"modified": -1, "size": 1}])
def test_offsets_of_files_that_have_no_size_and_time_are_refused(offset: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="reset the offset to read the file again"):
        FilesSourceConnector.check_offset({"filename": "/a"}, offset)
    FilesSourceConnector.check_offset({"filename": "/a"}, {"modified": 1, "size": 2})
    FilesSourceConnector.check_offset({"filename": "/a"}, None)
    with pytest.raises(ValueError, match="single key 'filename'"):
        FilesSourceConnector.check_offset({"file": "/a"}, None)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"format.class": "DeltaFormat"}, "String must be one of"),
        ({"input.file.pattern": "("}, "Not a regular expression"),
        ({"cleanup.policy": "MOVE"}, "requires finished.path"),
        (
            {"cleanup.policy": "MOVE", "finished.path": "/in/done", "input.path.walk.recursively": "true"},
            "read again",
        ),
        ({"max.files.per.batch": "0"}, "at least 1"),
    ],
)
def test_settings_of_the_source_that_do_not_fit_are_errors(settings: dict[str, str], text: str) -> None:
    errors = Registry.installed("1").errors({**CONFIG, **settings})
    assert len(errors) == 1
    assert text in errors[0]
