import logging
import shutil

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.ids import UNASSIGNED_DIRECTORY
from tidelog_node.hosting.commands import OpenLog
from tidelog_node.log import LogConfig
from tidelog_node.partitions import LogManager

TOPIC_ID = b"0123456789abcdef"
OTHER_ID = b"f" * 16
CONFIG = LogConfig()


@pytest.fixture
def open_directories(tmp_path):
    """Return a function that opens the named log directories as one process does."""

    def open_all(*names):
        return LogManager.open([str(tmp_path / n) for n in names], "test-cluster", 1)

    return open_all


def open_partition(directories, index, topic_id=TOPIC_ID):
    wanted = OpenLog(("t", index), topic_id, CONFIG, UNASSIGNED_DIRECTORY, is_in_sync=True, is_new=True)
    return directories.place(wanted).open_log("t", index, topic_id, CONFIG)


def stop(directories, *logs, clean=True):
    for log in logs:
        log.close()
    directories.close(clean=clean, broker_epoch=5)


def test_new_partitions_go_where_fewest_are(open_directories):
    directories = open_directories("a", "b")
    logs = [open_partition(directories, i) for i in range(5)]

    assert [log.directory.parent.name for log in logs] == ["a", "b", "a", "b", "a"]
    assert len(set(directories.ids)) == 2
    stop(directories, *logs)


def test_partitions_of_all_directories_are_found_with_their_checkpoints(open_directories, make_batch):
    directories = open_directories("a", "b")
    logs = [open_partition(directories, i) for i in range(2)]
    for log in logs:
        log.append_as_leader(make_batch(b"x", b"y"), 0, 0)
    marks = {log.directory.parent: {("t", i): i + 1} for i, log in enumerate(logs)}
    directories.write_checkpoints(marks, {log.directory.parent: {("t", i): 0} for i, log in enumerate(logs)})
    stop(directories, *logs)

    directories = open_directories("a", "b")
    assert directories.previous_broker_epoch == 5
    found = directories.load(CONFIG)
    assert {key: (f.log.directory.parent.name, f.high_watermark) for key, f in found.items()} == {
        ("t", 0): ("a", 1),
        ("t", 1): ("b", 2),
    }
    stop(directories, *(f.log for f in found.values()))


def test_stop_is_not_clean_when_one_directory_was_not_closed_cleanly(open_directories):
    stop(open_directories("a", "b"))
    stop(open_directories("b"), clean=False)

    directories = open_directories("a", "b")
    assert directories.previous_broker_epoch == -1
    stop(directories)


def test_partition_in_two_directories_is_found_in_both(open_directories):
    for name, topic_id in (("a", TOPIC_ID), ("b", OTHER_ID)):
        directories = open_directories(name)
        stop(directories, open_partition(directories, 0, topic_id))

    directories = open_directories("a", "b")
    found = directories.load(CONFIG)[("t", 0)]
    assert (found.topic_id, [rival.topic_id for rival in found.rivals]) == (TOPIC_ID, [OTHER_ID])
    chosen, others = found.choose(OTHER_ID, directories.ids[0])
    assert chosen is found.rivals[0]
    assert [other.topic_id for other in others] == [TOPIC_ID]
    stop(directories, found.log, found.rivals[0].log, clean=False)


def test_directory_that_is_in_use_is_left_out(open_directories, tmp_path):
    held = open_directories("b")
    directories = open_directories("a", "b")
    assert [d.path.name for d in directories.online] == ["a"]
    assert "is in use by another process" in directories.failures[tmp_path / "b"].message
    stop(directories)
    stop(held)


def test_directory_that_is_named_twice_is_refused(open_directories):
    with pytest.raises(ConfigError, match=r"contains .*/a twice"):
        open_directories("a", "b", "a")


def test_copy_of_a_directory_is_refused_beside_it(open_directories, tmp_path):
    stop(open_directories("a"))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with pytest.raises(ConfigError, match=r"have the same directory\.id"):
        open_directories("a", "b")
    stop(open_directories("a"))


def test_directory_without_an_id_gets_one_for_good(open_directories, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "meta.properties").write_text("version=1\ncluster.id=test-cluster\nnode.id=1\n")
    directories = open_directories("a")
    ids = directories.ids
    stop(directories)
    directories = open_directories("a")
    assert directories.ids == ids
    stop(directories)


def test_all_logs_are_opened_by_several_threads_with_one_summary(open_directories, make_batch, caplog):
    directories = open_directories("a", "b")
    logs = [open_partition(directories, i) for i in range(40)]
    for log in logs:
        log.append_as_leader(make_batch(b"x"), 0, 0)
    stop(directories, *logs, clean=False)

    directories = open_directories("a", "b")
    with caplog.at_level(logging.INFO):
        found = directories.load(CONFIG, threads_per_directory=3)
    assert len(found) == 40
    assert {f.log.log_end_offset for f in found.values()} == {1}
    [line] = [r.getMessage() for r in caplog.records if r.getMessage().startswith("Opened")]
    assert line.startswith("Opened 40 logs of 2 directories in ")
    assert line.endswith("; 40 had to be checked")
    stop(directories, *(f.log for f in found.values()))


def test_progress_is_told_every_few_seconds(open_directories, make_batch, caplog, monkeypatch):
    directories = open_directories("a")
    stop(directories, *(open_partition(directories, i) for i in range(3)))
    monkeypatch.setattr("tidelog_node.partitions.directories.loading._PROGRESS_S", 0)
    directories = open_directories("a")
    with caplog.at_level(logging.INFO):
        found = directories.load(CONFIG)
    assert [r.getMessage() for r in caplog.records][:3] == [f"{n} of 3 logs are open" for n in (1, 2, 3)]
    stop(directories, *(f.log for f in found.values()))


def test_log_start_offsets_are_found_after_a_crash(open_directories, make_batch):
    directories = open_directories("a", "b")
    log = open_partition(directories, 0)
    for _ in range(3):
        log.append_as_leader(make_batch(b"x"), 0, 0)
    log.advance_log_start_offset(2)
    assert directories.write_log_start_offsets({log.directory.parent: {("t", 0): 2}}) == {}
    stop(directories, log, clean=False)

    directories = open_directories("a", "b")
    found = directories.load(CONFIG)[("t", 0)]
    assert (found.log.log_start_offset, found.high_watermark) == (2, 2)
    stop(directories, found.log)
