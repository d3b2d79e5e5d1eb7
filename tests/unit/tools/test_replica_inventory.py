"""The inventory of a stopped node: the end of each log, whatever its last segments look like."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tools_partition import data_batch, write_segment
from typer.testing import Result

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import TopicId
from tidelog_node.log.directory.partition_folder import write_topic_id
from tidelog_node.log.disk.files import OS_FILES
from tidelog_node.tools.replica_inventory import read_inventory
from tidelog_quorum.metadata.replica_inventory import LogEnd, parse_inventory

TOPIC = TopicId(b"t" * 16)
Tidelog = Callable[..., Result]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return new_log_dir(tmp_path / "data", epoch=12)


def new_log_dir(path: Path, *, node: int = 3, epoch: int | None = None) -> Path:
    path.mkdir()
    (path / "meta.properties").write_text(f"version=1\ncluster.id=c\nnode.id={node}\ndirectory.id=x\n")
    if epoch is not None:
        (path / ".kafka_cleanshutdown").write_text(json.dumps({"version": 0, "brokerEpoch": epoch}))
    return path


def replica(log_dir: Path, name: str, *segments: tuple[int, list[bytes]]) -> None:
    folder = log_dir / name
    folder.mkdir()
    write_topic_id(OS_FILES, folder, TOPIC)
    for base_offset, batches in segments:
        write_segment(folder, base_offset, batches)
    for path in folder.iterdir():
        # Nobody is writing.
        os.utime(path, (1_600_000_000, 1_600_000_000))


def ends(log_dir: Path) -> dict[int, LogEnd]:
    return {found.partition: found.end for found in read_inventory([log_dir]).replicas}


def test_end_is_that_of_the_last_whole_batch(log_dir: Path) -> None:
    replica(log_dir, "t-0", (0, [data_batch(0, epoch=2)]), (2, [data_batch(2, epoch=2), data_batch(4, 3, epoch=5)]))
    replica(log_dir, "t-1", (0, [data_batch(0, epoch=2), data_batch(2, epoch=2)[:-1]]))
    replica(log_dir, "t-2", (0, [data_batch(0, epoch=1)]), (2, []))
    replica(log_dir, "t-3", (9, []))
    flipped = bytearray(data_batch(2, epoch=7))
    flipped[-1] ^= 1
    replica(log_dir, "t-4", (0, [data_batch(0, epoch=1), bytes(flipped)]))
    assert ends(log_dir) == {0: LogEnd(5, 7), 1: LogEnd(2, 2), 2: LogEnd(1, 2), 3: LogEnd(-1, 9), 4: LogEnd(1, 2)}


def test_segments_that_were_not_synced_before_a_crash_end_at_the_first_torn_batch(tmp_path: Path) -> None:
    log_dir = new_log_dir(tmp_path / "crashed")
    torn = data_batch(2, epoch=2)[:-1]
    replica(log_dir, "t-0", (0, [data_batch(0, epoch=2), torn]), (4, [data_batch(4, epoch=3)]))
    replica(log_dir, "t-1", (0, [data_batch(0, epoch=2), torn]), (4, [data_batch(4, epoch=3)]))
    replica(log_dir, "t-2", (0, [torn]), (4, [data_batch(4, epoch=3)]))
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nt 1 4\n")
    assert ends(log_dir) == {0: LogEnd(2, 2), 1: LogEnd(3, 6), 2: LogEnd(-1, 0)}


def test_only_replicas_in_use_count(log_dir: Path) -> None:
    for name in ("t-0.0123456789abcdef0123456789abcdef-delete", "t-1.0123456789abcdef0123456789abcdef-future"):
        replica(log_dir, name, (0, [data_batch(0)]))
    (log_dir / "t-2").mkdir()
    assert ends(log_dir) == {}


def test_clean_shutdown_counts_if_all_directories_had_it(log_dir: Path, tmp_path: Path) -> None:
    assert read_inventory([log_dir]).clean_shutdown_epoch == 12
    assert read_inventory([log_dir, new_log_dir(tmp_path / "b", epoch=12)]).clean_shutdown_epoch == 12
    assert read_inventory([log_dir, new_log_dir(tmp_path / "c")]).clean_shutdown_epoch is None
    assert read_inventory([log_dir, new_log_dir(tmp_path / "d", epoch=13)]).clean_shutdown_epoch is None


def test_directories_of_several_nodes_or_of_none_are_refused(log_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(TidelogError, match="all log directories of one node, not for"):
        read_inventory([log_dir, new_log_dir(tmp_path / "other", node=4)])
    (tmp_path / "none").mkdir()
    with pytest.raises(TidelogError, match=r"has no valid meta\.properties"):
        read_inventory([tmp_path / "none"])


def test_command_prints_a_table_or_the_document(log_dir: Path, tidelog: Tidelog) -> None:
    replica(log_dir, "t-0", (0, [data_batch(0, epoch=2)]))
    assert parse_inventory(tidelog("replicas", "--json", log_dir).stdout, "f") == read_inventory([log_dir])
    header, row = tidelog("replicas", log_dir).stdout.splitlines()
    assert header.split() == ["TOPIC", "PARTITION", "TOPIC", "ID", "LEADER", "EPOCH", "LOG", "END", "OFFSET"]
    assert row.split()[0] == "t"
