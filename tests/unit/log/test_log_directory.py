from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog_foundation.errors import ConfigError, ErrorCode, RefreshMetadataError, TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId, TopicId
from tidelog_node.log import LogConfig, LogDirectory

PATH = Path("/data")
TOPIC_ID = TopicId(bytes(range(16)))
NODE = BrokerId(1)


def _open(disk, **changes):
    return LogDirectory.open(PATH, **{"cluster_id": "alpha", "node_id": NODE, "files": disk, **changes})


def _stop(directory, log, clean=True):
    log.close()
    directory.recovery_points.replace({("topic", 0): log.recovery_point})
    directory.close(clean=clean, broker_epoch=BrokerEpoch(9))


def test_new_directory_gets_meta_properties(disk):
    directory = _open(disk)
    lines = disk.read_bytes(PATH / "meta.properties").decode().splitlines()
    assert lines == ["cluster.id=alpha", f"directory.id={directory.properties.directory_id}", "node.id=1", "version=1"]
    assert len(directory.properties.directory_id) == 22
    directory.close(clean=True)
    assert _open(disk).properties == directory.properties


def test_directory_of_another_cluster_is_refused_and_left_alone(disk):
    _open(disk).close(clean=True)
    with pytest.raises(TidelogError, match="belongs to the cluster alpha, this node to beta") as caught:
        _open(disk, cluster_id="beta")
    assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert _open(disk).clean_shutdown_epoch == -1


def test_directory_of_another_node_is_refused(disk):
    _open(disk).close(clean=True)
    with pytest.raises(ConfigError, match=r"belongs to node\.id=1, this node has 2"):
        _open(disk, node_id=BrokerId(2))


def test_unreadable_meta_properties_are_refused(disk):
    disk.write_bytes(PATH / "meta.properties", b"version=0\n")
    with pytest.raises(ConfigError, match=r"/data/meta.properties is not a meta.properties of version 1"):
        _open(disk)
    assert disk.handle_count == 0


def test_clean_stop_is_known_once_and_with_its_broker_epoch(disk):
    directory = _open(disk)
    assert directory.clean_shutdown_epoch is None
    directory.close(clean=True, broker_epoch=BrokerEpoch(77))
    assert disk.read_bytes(PATH / ".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":77}'
    assert _open(disk).clean_shutdown_epoch == 77
    disk.crash(random.Random(0))
    assert _open(disk).clean_shutdown_epoch is None


def test_log_is_opened_without_checks_once_after_a_clean_stop(disk, config, batch_of):
    directory = _open(disk)
    log = directory.open_log("topic", 0, TOPIC_ID, config)
    log.append_as_leader(batch_of(b"a"), 0, now_ms=0)
    _stop(directory, log)
    directory = _open(disk)
    assert directory.partitions() == [("topic", 0)]
    log = directory.open_log("topic", 0, TOPIC_ID, config)
    assert (log.log_end_offset, log.recovery.checked_segments) == (1, 0)
    log.close()
    assert directory.open_log("topic", 0, TOPIC_ID, config).recovery.checked_segments == 1


def test_log_is_checked_from_the_recovery_point_after_an_unclean_stop(disk, config, batch_of):
    directory = _open(disk)
    log = directory.open_log("topic", 0, TOPIC_ID, config)
    for _ in range(10):
        log.append_as_leader(batch_of(b"x" * 100), 0, now_ms=0)
    _stop(directory, log, clean=False)
    log = _open(disk).open_log("topic", 0, TOPIC_ID, config)
    assert (log.recovery.checked_segments, log.recovery_point) == (1, 10)


def test_log_of_an_earlier_topic_of_that_name_is_refused(disk, config):
    directory = _open(disk)
    directory.open_log("topic", 0, TOPIC_ID, config).close()
    with pytest.raises(TidelogError) as caught:
        directory.open_log("topic", 0, TopicId(bytes(16)), config)
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    assert directory.topic_id("topic", 0) == TOPIC_ID


def test_deletion_is_finished_by_the_next_start(disk, config):
    directory = _open(disk)
    directory.open_log("a-b", 0, TOPIC_ID, config).close()
    disk.fail = lambda operation, path: 5 if operation == "remove" else None
    with pytest.raises(RefreshMetadataError, match="Deleting"):
        directory.delete_partition("a-b", 0)
    disk.fail = lambda operation, path: None
    assert directory.partitions() == []
    directory.close(clean=True)
    assert _open(disk).partitions() == []
    assert not [path for path in disk.paths() if "delete" in str(path)]


def test_high_watermarks_are_found_after_a_restart(disk):
    directory = _open(disk)
    directory.high_watermarks.replace({("topic", 0): 5})
    directory.close(clean=False)
    assert _open(disk).high_watermarks.get(("topic", 0)) == 5


@pytest.mark.costly
def test_directory_is_used_by_one_process_at_a_time(tmp_path):
    directory = LogDirectory.open(tmp_path, cluster_id="alpha", node_id=NODE)
    program = (
        "import sys; from pathlib import Path; from tidelog_node.log import LogDirectory\n"
        "try: LogDirectory.open(Path(sys.argv[1]), cluster_id='alpha', node_id=1)\n"
        "except Exception as error: print(error)\n"
        "else: print('opened')"
    )
    run = [sys.executable, "-c", program, str(tmp_path)]
    assert "is in use by another process" in subprocess.run(run, capture_output=True, text=True, check=True).stdout
    directory.close(clean=True)
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "opened\n"


def test_log_on_the_real_disk_survives_close_and_reopening(tmp_path, batch_of):
    config = LogConfig(segment_bytes=600, index_interval_bytes=100)
    directory = LogDirectory.open(tmp_path, cluster_id="alpha", node_id=NODE)
    log = directory.open_log("topic", 3, TOPIC_ID, config)
    for index in range(30):
        log.append_as_leader(batch_of(b"x" * 30, b"y" * 30, timestamp_ms=index), index // 10, now_ms=0)
    content = [log.read(offset, 1, 60) for offset in range(60)]
    _stop(directory, log)
    directory = LogDirectory.open(tmp_path, cluster_id="alpha", node_id=NODE)
    log = directory.open_log("topic", 3, TOPIC_ID, config)
    assert [log.read(offset, 1, 60) for offset in range(60)] == content
    log.truncate_to(31)
    log.check_invariants()
    assert log.log_end_offset == 30
    log.delete()
    directory.forget("topic", 3)
    assert directory.partitions() == []
    assert not (tmp_path / "topic-3").exists()
    directory.close(clean=True)


def test_directory_with_partitions_but_without_meta_properties_is_refused(disk, config):
    directory = _open(disk)
    directory.open_log("a-b", 0, TOPIC_ID, config).close()
    directory.close(clean=True)
    disk.remove(PATH / "meta.properties")
    with pytest.raises(ConfigError, match=r"/data holds partitions \(a-b-0, ...\) but no meta\.properties"):
        _open(disk)
    assert disk.handle_count == 0
    assert PATH / "meta.properties" not in disk.paths()


def test_new_partition_inherits_no_checkpoint_of_an_earlier_one_of_its_name(disk, config, batch_of):
    directory = _open(disk)
    directory.recovery_points.replace({("topic", 0): 5_000, ("other", 0): 7})
    directory.high_watermarks.replace({("topic", 0): 5_000, ("other", 0): 7})
    directory.open_log("topic", 0, TOPIC_ID, config).append_as_leader(batch_of(b"a"), 0, now_ms=0)
    disk.crash(random.Random(0))

    directory = _open(disk)
    for file in (directory.high_watermarks, directory.recovery_points):
        assert (file.get(("topic", 0)), file.get(("other", 0))) == (None, 7)
