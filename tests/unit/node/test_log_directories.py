import pytest

from tidelog.errors import ConfigError
from tidelog_node.log import LogConfig
from tidelog_node.partitions import LogDirectories

TOPIC_ID = b"0123456789abcdef"
OTHER_ID = b"f" * 16
CONFIG = LogConfig()


@pytest.fixture
def open_directories(tmp_path):
    """Return a function that opens the named log directories as one process does."""

    def open_all(*names):
        return LogDirectories.open([str(tmp_path / n) for n in names], "test-cluster", 1)

    return open_all


def stop(directories, *logs, clean=True):
    for log in logs:
        log.close()
    directories.close(clean=clean, broker_epoch=5)


def test_new_partitions_go_where_fewest_are(open_directories):
    directories = open_directories("a", "b")
    logs = [directories.open_partition(("t", i), TOPIC_ID, CONFIG) for i in range(5)]

    assert [log.directory.parent.name for log in logs] == ["a", "b", "a", "b", "a"]
    assert len(set(directories.ids)) == 2
    stop(directories, *logs)


def test_partitions_of_all_directories_are_found_with_their_checkpoints(open_directories, make_batch):
    directories = open_directories("a", "b")
    logs = [directories.open_partition(("t", i), TOPIC_ID, CONFIG) for i in range(2)]
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


@pytest.mark.parametrize("second_id", [TOPIC_ID, OTHER_ID], ids=["same topic", "earlier topic of that name"])
def test_partition_in_two_directories_stops_the_start(open_directories, second_id):
    for name, topic_id in (("a", TOPIC_ID), ("b", second_id)):
        directories = open_directories(name)
        stop(directories, directories.open_partition(("t", 0), topic_id, CONFIG))

    directories = open_directories("a", "b")
    with pytest.raises(ConfigError, match=r"a/t-0 and .*b/t-0 are the same partition"):
        directories.load(CONFIG)
    stop(directories, clean=False)


def test_directory_that_is_in_use_releases_those_that_were_opened_before(open_directories):
    held = open_directories("b")
    with pytest.raises(Exception, match="in use"):
        open_directories("a", "b")

    stop(open_directories("a"))
    stop(held)
