"""``tidelog log dump``: what each kind of file looks like, in each format, and what is an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tools_partition import NOW_MS, write_segment
from typer.testing import Result

from tidelog_foundation.records import RecordBatchBuilder, assign_offsets
from tidelog_node.groups.records import OffsetCommitKey, encode
from tidelog_node.groups.value_formats import OffsetCommitValue
from tidelog_node.log.producers.entries import BatchMetadata
from tidelog_node.log.producers.snapshot_format import decode_snapshot, encode_snapshot
from tidelog_node.shards.events import ShardRecord
from tidelog_node.tools.dump import PayloadFormat, shown

Tidelog = Callable[..., Result]
SEGMENT, INDEX, TIME_INDEX = (f"{0:020d}.{suffix}" for suffix in ("log", "index", "timeindex"))


def json_lines(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_dump_lines_are_those_of_kafka_dump_log(tidelog: Tidelog, partition: Path) -> None:
    result = tidelog("dump", "--format", "lines", "--print-data", partition / SEGMENT)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:5] == [
        f"Dumping {partition / SEGMENT}",
        "Log starting offset: 0",
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1"
        " partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty"
        " position: 0 CreateTime: 1700000000001 size: 107 magic: 2 compresscodec: none"
        f" crc: {int.from_bytes((partition / SEGMENT).read_bytes()[17:21], 'big')} isvalid: true",
        "| offset: 0 CreateTime: 1700000000000 keySize: 3 valueSize: 5 sequence: -1 headerKeys: [trace]"
        " key: key payload: value",
        "| offset: 1 CreateTime: 1700000000001 keySize: 3 valueSize: 5 sequence: -1 headerKeys: [trace]"
        " key: key payload: value",
    ]
    assert lines[-1] == (
        "| offset: 6 CreateTime: 1700000000000 keySize: 4 valueSize: 6 sequence: -1 headerKeys: []"
        " endTxnMarker: ABORT coordinatorEpoch: 7"
    )


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (INDEX, ["offset: 4 position: 107", "offset: 5 position: 237", "offset: 6 position: 321"]),
        (
            TIME_INDEX,
            [
                "timestamp: 1700000000001 offset: 1",
                "timestamp: 1700000000012 offset: 4",
                "timestamp: 1700000000020 offset: 5",
            ],
        ),
        (f"{0:020d}.txnindex", ["version: 0 producerId: 9 firstOffset: 5 lastOffset: 6 lastStableOffset: 7"]),
        (
            f"{7:020d}.snapshot",
            [
                "producerId: 9 producerEpoch: 0 coordinatorEpoch: 7 currentTxnFirstOffset: OptionalLong.empty"
                " lastTimestamp: 1700000000020 firstSequence: 0 lastSequence: 0 lastOffset: 5 offsetDelta: 0"
                " timestamp: 1700000000020"
            ],
        ),
        ("leader-epoch-checkpoint", ["epoch: 0 startOffset: 0", "epoch: 1 startOffset: 7"]),
        ("partition.metadata", ["version: 0 topic_id: AAAAAAAAAAAAAAAAAAAAAQ"]),
    ],
)
def test_dump_shows_the_entries_of_every_kind_of_file(
    tidelog: Tidelog, partition: Path, name: str, lines: list[str]
) -> None:
    result = tidelog("dump", "--format", "lines", partition / name)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [f"Dumping {partition / name}", *lines]


def test_dump_tells_how_many_batches_of_a_producer_are_retained_but_not_in_kafkas_lines(
    tidelog: Tidelog, partition: Path
) -> None:
    path = partition / f"{7:020d}.snapshot"
    entries = decode_snapshot(path.read_bytes())
    kafkas = tidelog("dump", "--format", "lines", path).stdout
    path.write_bytes(encode_snapshot([replace(entries[0], older_batches=(BatchMetadata(2**31 - 1, 4, 0, NOW_MS),))]))
    assert tidelog("dump", "--format", "lines", path).stdout == kafkas
    assert json_lines(tidelog("dump", "--json", path))[0]["retainedBatches"] == 2
    _, header, row = tidelog("dump", path).stdout.rstrip("\n").splitlines()
    assert (header.endswith("RETAINED BATCHES"), row.split()[-1]) == (True, "2")


def test_dump_table_lines_up(tidelog: Tidelog, partition: Path) -> None:
    result = tidelog("dump", partition / SEGMENT)
    assert result.exit_code == 0
    title, header, *rows = result.stdout.rstrip("\n").splitlines()
    assert title == str(partition / SEGMENT)
    for row in rows:
        assert row.index("CreateTime") == header.index("TIMESTAMP TYPE")
        assert row[: header.index("  SIZE")].strip().isdigit()
    assert [row.split()[-1] for row in rows] == ["none", "none", "transactional", "transactional,control"]


def test_dump_json_is_one_object_per_line(tidelog: Tidelog, partition: Path) -> None:
    rows = json_lines(tidelog("dump", "--json", "--print-data", partition / SEGMENT))
    assert [row["kind"] for row in rows] == [
        "batch",
        *["record"] * 2,
        "batch",
        *["record"] * 3,
        *["batch", "record"] * 2,
    ]
    assert (
        rows[0] | {"baseOffset": 0, "isvalid": True, "deleteHorizonMs": None, "timestampType": "CreateTime"} == rows[0]
    )
    assert rows[1] | {"offset": 0, "key": "key", "payload": "value", "headerKeys": ["trace"]} == rows[1]


def test_dump_stops_after_max_batches(tidelog: Tidelog, partition: Path) -> None:
    rows = json_lines(tidelog("dump", "--json", "--max-batches", 2, partition / SEGMENT))
    assert [row["baseOffset"] for row in rows] == [0, 2]


def test_dump_of_a_directory_shows_all_its_files(tidelog: Tidelog, partition: Path) -> None:
    log_dir = partition.parent
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nflights 0 12\n")
    (log_dir / "meta.properties").write_text("#\ncluster.id=c\nnode.id=1\nversion=1\n")
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":3}')
    (partition / f"{0:020d}.log.deleted").write_bytes(b"gone")
    (log_dir / "flights-1.0a1b-delete").mkdir()
    result = tidelog("dump", "--format", "lines", log_dir)
    assert result.exit_code == 0
    dumped = [Path(line.removeprefix("Dumping ")).name for line in result.stdout.splitlines() if "Dumping" in line]
    assert dumped[:3] == [".kafka_cleanshutdown", "meta.properties", "recovery-point-offset-checkpoint"]
    assert len(dumped) == 3 + len(list(partition.iterdir())) - 1
    assert "topic: flights partition: 0 offset: 12" in result.stdout


@pytest.mark.parametrize(
    ("name", "position", "text"),
    [
        (SEGMENT, 107 + 70, "the CRC does not fit"),
        (INDEX, 1, "does not increase"),
        (TIME_INDEX, 7, "batch"),
        (f"{7:020d}.snapshot", 20, "CRC"),
        (f"{0:020d}.txnindex", 0, "expected 0"),
        ("leader-epoch-checkpoint", 0, "version"),
    ],
)
def test_dump_ends_with_1_and_names_the_file_when_a_byte_is_wrong(
    tidelog: Tidelog, partition: Path, name: str, position: int, text: str
) -> None:
    data = bytearray((partition / name).read_bytes())
    data[position] ^= 1
    (partition / name).write_bytes(data)
    result = tidelog("dump", "--format", "lines", partition / name)
    assert result.exit_code == 1
    [problem] = [line for line in result.stderr.splitlines() if text in line]
    assert problem.startswith(f"{partition / name}:")


def test_dump_says_where_bytes_stop_being_batches(tidelog: Tidelog, partition: Path) -> None:
    path = partition / SEGMENT
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\x01" * 100)
    [*_, problem] = json_lines(tidelog("dump", "--json", path))
    assert (problem["kind"], problem["position"]) == ("problem", size)
    path.write_bytes(path.read_bytes()[: size - 5])
    result = tidelog("dump", path)
    assert result.exit_code == 1
    assert f"problem: byte {size - 78}: a torn batch with base offset 6: it has 78 bytes, 73 are there" in result.stdout


def test_dump_takes_zeros_at_the_end_for_a_preallocated_rest(tidelog: Tidelog, partition: Path) -> None:
    for name, zeros in ((SEGMENT, 5_000_000), (INDEX, 80), (TIME_INDEX, 120)):
        path = partition / name
        path.write_bytes(path.read_bytes() + bytes(zeros))
        result = tidelog("dump", path)
        assert result.exit_code == 0
        assert ("preallocated" in result.stdout) == (name == SEGMENT)


@pytest.mark.parametrize(("option", "text"), [("--index-sanity-check", "passed"), ("--verify-index-only", "entries")])
@pytest.mark.parametrize("name", [INDEX, TIME_INDEX])
def test_dump_checks_indexes_without_showing_them(
    tidelog: Tidelog, partition: Path, option: str, text: str, name: str
) -> None:
    result = tidelog("dump", option, "--format", "lines", partition / name)
    assert result.exit_code == 0
    assert text in result.stderr
    assert "offset: " not in result.stdout


@pytest.mark.parametrize(
    "args",
    [
        ("dump",),
        ("dump", "/nowhere"),
        ("dump", __file__),
        ("dump", "--max-batches", "0", __file__),
        ("dump", "--key-format", "xml", __file__),
        ("verify", __file__),
        ("verify", str(Path(__file__).parent)),
        ("dump", str(Path(__file__).parent)),
    ],
)
def test_log_command_ends_with_2_for_bad_arguments(tidelog: Tidelog, args: tuple[str, ...]) -> None:
    assert tidelog(*args).exit_code == 2


def test_dump_refuses_two_ways_to_check_an_index(tidelog: Tidelog, partition: Path) -> None:
    assert tidelog("dump", "--index-sanity-check", "--verify-index-only", partition / INDEX).exit_code == 2


def write_offset_commits(partition: Path) -> Path:
    """Write a segment with a committed offset, its deletion, and a record of another topic."""
    key, value = OffsetCommitKey("g", "t", 1), OffsetCommitValue(7, -1, "", NOW_MS)
    builder = RecordBatchBuilder()
    for record in (encode(key, value), encode(key, None), ShardRecord(b"k", b"v")):
        builder.append(record.key, record.value, timestamp_ms=NOW_MS)
    batch = bytearray(builder.build())
    assign_offsets(batch, 20, 1)
    return write_segment(partition, 20, [bytes(batch)])


def test_dump_decodes_the_records_of_an_internal_topic(tidelog: Tidelog, partition: Path) -> None:
    path = write_offset_commits(partition)
    result = tidelog("dump", "--json", "--offsets-decoder", path)
    assert result.exit_code == 1
    _, committed, deleted, problem, other = json_lines(result)
    key = {"type": "1", "data": {"group": "g", "topic": "t", "partition": 1}}
    data = {"offset": 7, "leaderEpoch": -1, "metadata": "", "commitTimestamp": NOW_MS}
    assert committed | {"key": key, "payload": {"version": "3", "data": data}} == committed
    assert deleted | {"key": key, "payload": "<DELETE>"} == deleted
    assert problem["text"] == "record at offset 22: 2 bytes expected at byte 0 of 1"
    assert (other["offset"], "key" in other) == (22, False)
    *_, line, _ = tidelog("dump", "--format", "lines", "--offsets-decoder", path).stdout.splitlines()
    assert line.endswith('key: {"type":"1","data":{"group":"g","topic":"t","partition":1}} payload: <DELETE>')
    table = tidelog("dump", "--offsets-decoder", path).stdout
    assert 'key {"type":"1","data":{"group":"g","topic":"t","partition":1}}  value <DELETE>' in table


@pytest.mark.parametrize(
    "options", [("--transaction-log-decoder",), ("--key-format", "hex"), ("--value-format", "json")]
)
def test_dump_refuses_two_ways_to_show_a_record(tidelog: Tidelog, partition: Path, options: tuple[str, ...]) -> None:
    assert tidelog("dump", "--offsets-decoder", *options, partition / SEGMENT).exit_code == 2


@pytest.mark.parametrize(
    ("data", "payload_format", "text"),
    [
        (None, PayloadFormat.HEX, None),
        ("Flüge ✈".encode(), PayloadFormat.AUTO, "Flüge ✈"),
        (b"\x00\x01", PayloadFormat.AUTO, "0x0001"),
        (b"two\nlines", PayloadFormat.AUTO, "0x74776f0a6c696e6573"),
        (b"a\xff", PayloadFormat.TEXT, "a\\xff"),
        (b"ab", PayloadFormat.HEX, "6162"),
        (b'{"a": [1, 2]}', PayloadFormat.JSON, '{"a":[1,2]}'),
        (b"no json", PayloadFormat.JSON, "no json"),
    ],
)
def test_payload_is_shown_as_asked_for(data: bytes | None, payload_format: PayloadFormat, text: str | None) -> None:
    assert shown(data, payload_format) == text
