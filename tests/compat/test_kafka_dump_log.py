"""Kafka's own kafka-dump-log reads what the node writes, and shows what ``tidelog log dump`` shows.

Kafka is what ``make compat`` fetches, or an installation (3.7 or newer): the folder ``KAFKA_HOME`` has ``libs/*.jar``,
as Kafka's archive does.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from compat.java_tools import run
from sample_partition import write_sample_partition
from typer.testing import CliRunner

from tidelog_cli.commands import app
from tidelog_node.log.producers.snapshot_format import decode_snapshot, encode_snapshot

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("logs") / "flights-0"
    write_sample_partition(directory)
    return directory


def kafka_dump_log(paths: list[Path], *options: str, complaints: tuple[str, ...] = ()) -> list[str]:
    """Return what Kafka's tool prints; it must complain of nothing else than ``complaints``."""
    done = run("kafka-dump-log", *options, "--files", ",".join(map(str, paths)))
    said = [line.strip() for line in done.err.splitlines()]
    assert (done.code, sorted(said)) == (0, sorted(complaints))
    return done.out.splitlines()


def tidelog_log_dump(paths: list[Path], *options: str) -> list[str]:
    result = CliRunner().invoke(app, ["log", "dump", "--format", "lines", *options, *map(str, paths)])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def files_with(partition: Path, suffix: str) -> list[Path]:
    paths = sorted(partition.glob(f"*.{suffix}"))
    assert paths, f"the log wrote no .{suffix}"
    return paths


def test_kafka_dump_log_shows_the_same_batches_and_records(partition: Path) -> None:
    segments = files_with(partition, "log")
    assert len(segments) >= 3
    gaps = (f"Non-consecutive offsets in {segments[1]}", "293 is followed by 295", "326 is followed by 329")
    lines = kafka_dump_log(segments, "--deep-iteration", "--print-data-log", complaints=gaps)
    text = ("--key-format", "text", "--value-format", "text")
    assert lines == tidelog_log_dump(segments, "--print-data", *text)
    batches = [line for line in lines if line.startswith("baseOffset")]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert any(f"compresscodec: {codec} " in line for line in batches)
    assert all("isvalid: true" in line for line in batches)
    assert sum("endTxnMarker: ABORT" in line for line in lines) == 3


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex", "snapshot"])
def test_kafka_dump_log_shows_the_same_entries(partition: Path, suffix: str) -> None:
    paths = files_with(partition, suffix)
    lines = kafka_dump_log(paths)
    assert lines == tidelog_log_dump(paths)
    assert len(lines) > len(paths)


def test_kafka_dump_log_passes_over_the_older_batches_of_a_snapshot(partition: Path, tmp_path: Path) -> None:
    whole = files_with(partition, "snapshot")[-1]
    entries = decode_snapshot(whole.read_bytes())
    assert any(entry.older_batches for entry in entries)
    kafkas = tmp_path / whole.name
    kafkas.write_bytes(encode_snapshot([replace(entry, older_batches=()) for entry in entries]))
    assert kafkas.stat().st_size < whole.stat().st_size
    lines = kafka_dump_log([whole])
    assert lines[1:] == kafka_dump_log([kafkas])[1:]
    assert len(lines) == 1 + len(entries)


@pytest.mark.parametrize("option", ["--index-sanity-check", "--verify-index-only"])
def test_kafka_dump_log_finds_the_indexes_right(partition: Path, option: str) -> None:
    kafka_dump_log([*files_with(partition, "index"), *files_with(partition, "timeindex")], option)
