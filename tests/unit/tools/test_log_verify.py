"""``tidelog log verify``: a sound partition passes, each kind of damage is named, a growing log is not damage."""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tools_partition import NOW_MS, data_batch, marker_batch, write_partition, write_segment
from typer.testing import Result

from tidelog_foundation.records import ControlType, parse_header
from tidelog_node.log.producers.entries import ProducerEntry
from tidelog_node.log.producers.snapshot_format import encode_snapshot
from tidelog_node.log.segments.transaction_index import AbortedTransaction, encode_aborted
from tidelog_node.tools.segment_scan import CHUNK_SIZE, SegmentScan

Tidelog = Callable[..., Result]
FIRST, SECOND = f"{0:020d}", f"{7:020d}"


@pytest.fixture(autouse=True)
def aged(partition: Path) -> None:
    """Files that nobody is writing to, so that damage is not waited for."""
    age(partition)


def age(partition: Path) -> None:
    for path in (partition, *partition.iterdir()):
        os.utime(path, (1_600_000_000, 1_600_000_000))


def damage(path: Path, change: Callable[[bytearray], None]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    age(path.parent)


def findings(tidelog: Tidelog, *args: object) -> tuple[list[dict[str, object]], dict[str, object]]:
    result = tidelog("verify", "--json", *args)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    problems = [row for row in rows if row["kind"] == "problem"]
    assert result.exit_code == (1 if problems else 0), result.output
    assert rows[-1]["kind"] == "summary"
    assert rows[-1]["problems"] == len(problems)
    return problems, rows[-1]


def the_problem(tidelog: Tidelog, partition: Path) -> tuple[str, object, str]:
    """Return file name, position and text of the first problem."""
    problems, _ = findings(tidelog, partition)
    assert problems
    return Path(str(problems[0]["file"])).name, problems[0]["position"], str(problems[0]["text"])


def test_verify_finds_nothing_in_a_sound_partition(tidelog: Tidelog, partition: Path) -> None:
    for args in ((partition,), (partition.parent,), ("--deep", partition, partition.parent)):
        result = tidelog("verify", *args)
        assert result.exit_code == 0, result.output
        header, row, summary = result.stdout.splitlines()
        assert header.split()[0] == "PARTITION"
        assert row.split() == ["flights-0", "2", "6", "11", str(size_of(partition)), "0", "12", "0"]
        assert summary.startswith(f"1 partition, 2 segments, 6 batches, 11 records, {size_of(partition):,} bytes in ")
        assert summary.endswith("MB/s): no problems")


def size_of(partition: Path) -> int:
    return sum(path.stat().st_size for path in partition.glob("*.log"))


def test_verify_changes_no_file(tidelog: Tidelog, partition: Path) -> None:
    def look() -> list[tuple[str, bytes, int]]:
        return [(path.name, path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(partition.iterdir())]

    before = look()
    damage(partition / f"{SECOND}.log", lambda data: data.extend(b"torn"))
    damaged = look()
    tidelog("verify", partition)
    tidelog("dump", partition)
    assert look() == damaged != before


@pytest.mark.costly
@pytest.mark.parametrize("deep", [[], ["--deep"]])
def test_verify_finds_any_flipped_bit_of_a_segment(tidelog: Tidelog, partition: Path, deep: list[str]) -> None:
    path = partition / f"{FIRST}.log"
    sound = path.read_bytes()
    for position in range(0, len(sound), 7):
        damage(path, lambda data, at=position: data.__setitem__(at, data[at] ^ 4))  # type: ignore[misc]
        problems, _ = findings(tidelog, *deep, partition)
        assert problems, position
        path.write_bytes(sound)


def test_verify_names_the_batch_whose_crc_does_not_fit_and_goes_on(tidelog: Tidelog, partition: Path) -> None:
    damage(partition / f"{FIRST}.log", lambda data: data.__setitem__(90, data[90] ^ 1))
    problems, summary = findings(tidelog, partition)
    assert [(problem["position"], problem["text"]) for problem in problems] == [
        (0, "batch at offset 0: the CRC does not fit")
    ]
    assert summary["batches"] == 6


@pytest.mark.parametrize(
    ("cut", "text"), [(5, "a torn batch with base offset 6"), (40, "38 bytes that are not a batch"), (70, "8 bytes")]
)
def test_verify_finds_a_torn_tail(tidelog: Tidelog, partition: Path, cut: int, text: str) -> None:
    damage(partition / f"{FIRST}.log", lambda data: data.__delitem__(slice(len(data) - cut, None)))
    name, position, found = the_problem(tidelog, partition)
    assert (name, position) == (f"{FIRST}.log", 321)
    assert found.startswith(text)


def test_verify_takes_zeros_behind_the_last_segment_alone_for_preallocated(tidelog: Tidelog, partition: Path) -> None:
    damage(partition / f"{SECOND}.log", lambda data: data.extend(bytes(10_000)))
    assert findings(tidelog, partition)[0] == []
    damage(partition / f"{FIRST}.log", lambda data: data.extend(bytes(10)))
    assert "zeros" in the_problem(tidelog, partition)[2]


INDEX_DAMAGES = [
    (f"{FIRST}.index", ">ii", 0, (4, 108), None, "no batch begins at byte 108"),
    (f"{FIRST}.index", ">ii", 1, (4, 237), 8, "does not increase"),
    (f"{FIRST}.index", ">ii", 2, (7, 321), 16, "offset 7 at byte 321 of the segment, where a batch ends at 6"),
    (f"{FIRST}.index", ">ii", 2, (6, 999), 16, "no batch is where the entry (offset 6, position 999) points"),
    (f"{FIRST}.index", ">ii", 0, (-1, 107), 0, "negative"),
    (f"{SECOND}.timeindex", ">qi", 0, (NOW_MS + 1, 3), None, "no batch"),
    (f"{FIRST}.timeindex", ">qi", 0, (NOW_MS + 2, 1), 0, "timestamp"),
    (f"{FIRST}.timeindex", ">qi", 2, (NOW_MS + 20, 9), 24, "no batch is where the entry"),
]


@pytest.mark.parametrize(("name", "form", "entry", "fields", "position", "text"), INDEX_DAMAGES)
def test_verify_finds_an_index_entry_that_does_not_fit(
    tidelog: Tidelog,
    partition: Path,
    name: str,
    form: str,
    entry: int,
    fields: tuple[int, int],
    position: int,
    text: str,
) -> None:
    damage(partition / name, lambda data: struct.pack_into(form, data, entry * struct.calcsize(form), *fields))
    found_name, found_position, found = the_problem(tidelog, partition)
    assert found_name == name
    assert text in found
    assert position is None or found_position == position


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex"])
def test_verify_finds_a_part_of_an_index_entry(tidelog: Tidelog, partition: Path, suffix: str) -> None:
    damage(partition / f"{FIRST}.{suffix}", lambda data: data.extend(b"\1\2\3"))
    name, _, text = the_problem(tidelog, partition)
    assert (name, "not a multiple" in text) == (f"{FIRST}.{suffix}", True)


def test_verify_does_without_indexes(tidelog: Tidelog, partition: Path) -> None:
    for path in (*partition.glob("*.index"), *partition.glob("*.timeindex"), *partition.glob("*.txnindex")):
        path.unlink()
    assert findings(tidelog, partition)[0] == []


@pytest.mark.parametrize(
    ("marker", "entry"),
    [(ControlType.COMMIT, (9, 5, 6, 7)), (ControlType.ABORT, (8, 5, 6, 7))],
    ids=["a commit", "another producer"],
)
def test_verify_finds_an_aborted_transaction_without_its_marker(
    tidelog: Tidelog, partition: Path, marker: ControlType, entry: tuple[int, int, int, int]
) -> None:
    data = (partition / f"{FIRST}.log").read_bytes()[:321] + marker_batch(6, marker, 9)
    (partition / f"{FIRST}.log").write_bytes(data)
    (partition / f"{FIRST}.txnindex").write_bytes(encode_aborted(AbortedTransaction(*entry)))
    age(partition)
    name, position, text = the_problem(tidelog, partition)
    assert (name, position) == (f"{FIRST}.txnindex", 0)
    assert "no ABORT marker" in text


@pytest.mark.parametrize(
    ("offset", "entry", "text"),
    [
        (7, ProducerEntry(9, 0, 0, 7, 0, NOW_MS, 7, -1), "not below its own"),
        (7, ProducerEntry(9, 0, 0, 5, 0, NOW_MS, 7, 9), "not below its own"),
        (50, ProducerEntry(9, 0, 0, 5, 0, NOW_MS, 7, -1), "this one ends at 12"),
    ],
)
def test_verify_finds_a_snapshot_that_does_not_fit_the_log(
    tidelog: Tidelog, partition: Path, offset: int, entry: ProducerEntry, text: str
) -> None:
    (partition / f"{offset:020d}.snapshot").write_bytes(encode_snapshot([entry]))
    age(partition)
    name, _, found = the_problem(tidelog, partition)
    assert name == f"{offset:020d}.snapshot"
    assert text in found


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("0\n2\n0 0\n1 9\n", "batch at offset 8 has leader epoch 1, leader-epoch-checkpoint says 0"),
        ("0\n2\n0 0\n2 7\n", "says 2"),
        ("0\n3\n0 0\n1 7\n2 13\n", "epoch 2 begins at offset 13, the log ends at 12"),
        ("0\n2\n1 0\n0 7\n", "comes after"),
        ("0\n9\n0 0\n1 7\n", "entries"),
    ],
)
def test_verify_finds_leader_epochs_that_do_not_fit(tidelog: Tidelog, partition: Path, content: str, text: str) -> None:
    (partition / "leader-epoch-checkpoint").write_text(content)
    age(partition)
    assert text in the_problem(tidelog, partition)[2]


def test_verify_finds_offsets_and_epochs_that_go_back(tidelog: Tidelog, partition: Path) -> None:
    (partition / "leader-epoch-checkpoint").unlink()
    write_segment(partition, 12, [data_batch(12, epoch=3), data_batch(13, epoch=2)])
    age(partition)
    texts = [problem["text"] for problem in findings(tidelog, partition)[0]]
    assert texts == [
        "batch at offset 13, expected 14 or more",
        "batch at offset 13 has leader epoch 2, one before it has 3",
    ]


def test_verify_finds_segments_that_overlap(tidelog: Tidelog, partition: Path) -> None:
    write_segment(partition, 11, [data_batch(12, epoch=1)])
    age(partition)
    assert "begins below 12" in the_problem(tidelog, partition)[2]


def test_verify_deep_finds_records_that_do_not_decode(tidelog: Tidelog, partition: Path) -> None:
    from crc32c import crc32c

    def change(data: bytearray) -> None:
        data[61] = 2
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:107])))

    damage(partition / f"{FIRST}.log", change)
    assert findings(tidelog, partition)[0] == []
    assert findings(tidelog, "--deep", partition)[0][0]["position"] == 0


def test_verify_checks_the_files_of_a_log_directory(tidelog: Tidelog, partition: Path) -> None:
    log_dir = partition.parent
    (log_dir / "replication-offset-checkpoint").write_text("0\n2\nflights 0 12\nflights 1 5\n")
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nflights 0 40\n")
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    result = tidelog("verify", log_dir)
    assert result.exit_code == 0
    assert "offset 40 of flights-0, whose log ends at 12" in result.stdout
    assert "offset 5 of flights-1, which is not in this directory" in result.stdout
    (log_dir / "meta.properties").write_text("version=1\n")
    (log_dir / "replication-offset-checkpoint").write_text("0\n7\nflights 0 12\n")
    texts = [problem["text"] for problem in findings(tidelog, log_dir)[0]]
    assert texts == ["cluster.id is missing", "node.id is missing", "1 entries, where the second line has 7"]


def test_verify_of_many_partitions_shows_those_with_problems(tidelog: Tidelog, tmp_path: Path) -> None:
    for number in range(42):
        age(write_partition(tmp_path / "many" / f"flights-{number}") or tmp_path)
    damage(tmp_path / "many" / "flights-17" / f"{FIRST}.log", lambda data: data.__setitem__(90, 0))
    result = tidelog("verify", tmp_path / "many")
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["PARTITION", "flights-17", "problem:", "42"]
    assert len(tidelog("verify", "--all", tmp_path / "many").stdout.splitlines()) == 45


def test_scan_reads_batches_larger_than_a_chunk_and_across_chunks(tmp_path: Path) -> None:
    sizes = [100, CHUNK_SIZE + 1000, CHUNK_SIZE - 200, 10, CHUNK_SIZE // 2, CHUNK_SIZE // 2, 5]
    batches = [data_batch(number, 1, value=os.urandom(size)) for number, size in enumerate(sizes)]
    path = write_segment(tmp_path, 0, batches)
    with SegmentScan(path) as scan:
        found = [(batch.header.base_offset, batch.is_valid, bytes(batch.data)) for batch in scan.batches()]
    assert found == [(number, True, batch) for number, batch in enumerate(batches)]
    assert (scan.fault, scan.end) == (None, path.stat().st_size)


@pytest.fixture(params=[0, 1 << 20], ids=["growing", "preallocated"])
def writer(request: pytest.FixtureRequest, partition: Path) -> Iterator[Path]:
    """Appends to the last segment, in pieces, as long as the test runs."""
    path, stop = partition / f"{SECOND}.log", threading.Event()
    end = path.stat().st_size
    if request.param:
        os.truncate(path, end + request.param)

    def append() -> None:
        position, offset = end, 12
        with path.open("r+b", buffering=0) as file:
            while not stop.wait(0.0005):
                batch = data_batch(offset, 3, epoch=1)
                for part in (batch[:40], batch[40:70], batch[70:]):
                    os.pwrite(file.fileno(), part, position)
                    position += len(part)
                offset = parse_header(batch).next_offset

    thread = threading.Thread(target=append)
    thread.start()
    yield partition
    stop.set()
    thread.join()


@pytest.mark.costly
def test_verify_of_a_log_that_grows_finds_no_problem(tidelog: Tidelog, writer: Path) -> None:
    for _ in range(15):
        result = tidelog("verify", "--deep", writer)
        assert result.exit_code == 0, result.output
        assert tidelog("dump", "--deep", "--json", writer / f"{SECOND}.log").exit_code == 0
