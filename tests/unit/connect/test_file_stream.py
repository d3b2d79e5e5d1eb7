"""Lines of FileStreamSource and FileStreamSink, and the settings of workers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_connect.connectors.file_stream import FileStreamSourceConnector, append_batch
from tidelog_connect.connectors.file_stream import read_lines as read_lines_as_arrow
from tidelog_connect.server.settings import worker_settings
from tidelog_connect.server.topic_storage import fence_record, offset_record
from tidelog_foundation.errors import ConfigError


def read_lines(path: Path, start: int, max_lines: int) -> tuple[list[bytes], int]:
    lines, end = read_lines_as_arrow(path, start, max_lines)
    return lines.to_pylist(), end


@given(st.lists(st.binary(max_size=3).map(lambda line: line.replace(b"\n", b"\r"))), st.integers(1, 6))
def test_lines_of_random_bytes_are_those_of_a_split(lines: list[bytes], max_lines: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, found, position = Path(folder) / "in", [], 0
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        while True:
            some, position = read_lines(path, position, max_lines)
            if not some:
                break
            assert len(some) <= max_lines
            found += some
    assert found == [line.removesuffix(b"\r") for line in lines]


def test_lines_are_read_from_a_position_once_they_are_complete(tmp_path: Path) -> None:
    path = tmp_path / "in"
    assert read_lines(path, 0, 10) == ([], 0)
    path.write_bytes(b"a\r\n\nc\nincomplete")
    assert read_lines(path, 0, 10) == ([b"a", b"", b"c"], 6)
    assert read_lines(path, 6, 10) == ([], 6)
    assert read_lines(path, 0, 2) == ([b"a", b""], 4)
    assert read_lines(path, 4, 2) == ([b"c"], 6)


def test_shorter_file_than_the_position_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"a\n")
    with pytest.raises(ValueError, match="has 2 bytes, but the position is 3"):
        read_lines(path, 3, 10)


def test_repeated_batch_replaces_what_it_has_written(tmp_path: Path) -> None:
    path = tmp_path / "out"
    append_batch(path, "q/0", [b"a\nnu", b"ll\n"])
    append_batch(path, "q/1", [b"b\n"])
    with path.open("ab") as file:
        file.write(b"torn")
    append_batch(path, "q/1", [b"b\nc\n"])
    assert path.read_bytes() == b"a\nnull\nb\nc\n"
    append_batch(path, "r/1", [b"d\n"])
    assert path.read_bytes() == b"a\nnull\nb\nc\nd\n"


@pytest.mark.parametrize(
    "offset", [{}, {"position": "x"}, {"position": True}, {"position": -1}, {"position": 1, "a": 1}]
)
def test_source_refuses_offsets_that_are_not_positions(offset: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="non-negative whole number"):
        FileStreamSourceConnector.check_offset({"filename": "x"}, offset)


def test_source_resets_a_file_and_refuses_other_partitions() -> None:
    FileStreamSourceConnector.check_offset({"filename": "x"}, None)
    with pytest.raises(ValueError, match="single key 'filename'"):
        FileStreamSourceConnector.check_offset({"file": "x"}, None)


def test_records_of_offsets_are_those_of_connect() -> None:
    key, value = offset_record("src", '{"filename":"/in"}', {"position": 7})
    assert (key, value) == (b'["src",{"filename":"/in"}]', b'{"position":7}')
    assert fence_record("src", 7) == (b'["src"]', b'{"number": 7}')


def test_settings_of_a_worker_are_divided() -> None:
    found = worker_settings({"group.id": "etl", "spark.master": "local[4]", "security.protocol": "PLAINTEXT"})
    assert (found.worker.group_id, found.worker.worker_id) == ("etl", "127.0.0.1:8083")
    assert found.spark == {"spark.master": "local[4]"}
    assert found.client == {"bootstrap.servers": "localhost:9094", "security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("grup.id", "x", 'did you mean "group.id"'),
        ("listeners", "ftp://x:1", "http://HOST:PORT"),
        ("listeners", "http://x", "http://HOST:PORT"),
        ("max.connectors", "0", "max.connectors"),
    ],
)
def test_settings_of_a_worker_that_are_not_valid_name_the_key(key: str, value: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        worker_settings({key: value})
