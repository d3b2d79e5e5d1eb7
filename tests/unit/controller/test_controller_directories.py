"""Log directories of brokers: where replicas are, and what follows when a directory fails (KIP-858)."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from tidelog_quorum.controller.elections import doubtful
from tidelog_quorum.metadata import BrokerRegistrationChangeRecord, MetadataImage
from tidelog_quorum.metadata.description import topic_metadata

A, B = b"a" * 16, b"b" * 16


def directories(driver: Any, name: str = "t", index: int = 0) -> tuple[bytes, ...]:
    return tuple(driver.partition(name, index).directories)


def epochs(driver: Any) -> tuple[int, int]:
    partition = driver.partition()
    return partition.leader_epoch, partition.partition_epoch


@pytest.fixture
def three(driver: Any) -> Any:
    """Brokers 1 to 3 with two directories each and a partition led by 1, whose replicas are all in their A."""
    driver.up(1, 2, 3, log_dirs=[A, B])
    driver.create(assignments=[[1, 2, 3]])
    for broker_id in (1, 2, 3):
        assert driver.assign(broker_id, A) is None
    return driver


def test_new_replica_is_in_the_only_directory_of_its_broker_and_unassigned_where_there_are_several(driver: Any) -> None:
    driver.up(1, log_dirs=[A])
    driver.up(2, log_dirs=[A, B])
    driver.create(assignments=[[1, 2]])
    assert directories(driver) == (A, UNASSIGNED_DIRECTORY)
    assert driver.state() == (1, (1, 2))


def test_assignment_is_written_once_and_elects_nobody(three: Any) -> None:
    assert directories(three) == (A, A, A)
    assert three.state() == (1, (1, 2, 3))
    assert epochs(three) == (0, 3)
    offset = three.image.offset
    assert three.assign(1, A) is None
    assert three.image.offset == offset


def test_failed_directory_takes_its_replicas_out_of_the_isr_and_moves_the_leadership(three: Any) -> None:
    three.create("u", assignments=[[1, 2]])
    three.assign(1, B, "u")
    three.heartbeat(1, offline_log_dirs=[A])
    assert three.state() == (2, (2, 3))
    assert epochs(three) == (1, 4)
    assert three.state("u") == (1, (1, 2)), "what is in the other directory goes on"
    assert three.image.brokers[1].log_dirs == (B,)
    assert not three.image.brokers[1].fenced


def test_failed_directory_of_a_follower_changes_no_leader(three: Any) -> None:
    three.heartbeat(2, offline_log_dirs=[A])
    assert three.state() == (1, (1, 3))
    assert epochs(three) == (0, 4)


def test_failed_directory_is_taken_note_of_once(three: Any) -> None:
    three.heartbeat(2, offline_log_dirs=[A])
    offset = three.image.offset
    three.heartbeat(2, offline_log_dirs=[A])
    assert three.image.offset == offset


def test_replica_in_an_offline_directory_may_not_join_the_isr(three: Any) -> None:
    three.heartbeat(2, offline_log_dirs=[A])
    result = three.alter(1, [1, 2, 3])
    assert result.error.code == ErrorCode.INELIGIBLE_REPLICA.code
    assert "log directory of broker 2 is offline" in result.error.message


def test_last_member_of_an_isr_stays_without_a_leader_while_its_directory_is_offline(three: Any) -> None:
    assert not three.alter(1, [1]).HasField("error")
    three.heartbeat(1, offline_log_dirs=[A])
    assert three.state() == (-1, (1,)), "nobody outside of the ISR is elected"
    three.heartbeat(1, offline_log_dirs=[A])
    assert three.state() == (-1, (1,))


def test_restart_with_the_directory_healthy_again_elects_its_replica(three: Any) -> None:
    three.alter(1, [1])
    three.heartbeat(1, offline_log_dirs=[A])
    three.now_ms += 9_000
    three.register(1, incarnation=2, log_dirs=[B])
    three.heartbeat(1)
    assert three.state() == (-1, (1,)), "the directory is missing still"
    three.now_ms += 9_000
    three.up(1, incarnation=3, log_dirs=[A, B])
    assert three.state() == (1, (1,))
    assert three.partition().leader_epoch == 2


def test_healed_replica_joins_the_isr_again_when_its_leader_says_so(three: Any) -> None:
    three.heartbeat(1, offline_log_dirs=[A])
    three.now_ms += 9_000
    three.heartbeat(2)
    three.heartbeat(3)
    three.up(1, incarnation=2, log_dirs=[A, B])
    assert not three.alter(2, [1, 2, 3]).HasField("error")
    assert three.state() == (2, (1, 2, 3))


def test_same_process_cannot_bring_a_failed_directory_back(three: Any) -> None:
    three.heartbeat(1, offline_log_dirs=[A])
    three.register(1, log_dirs=[A, B])
    assert three.image.brokers[1].log_dirs == (B,)


def test_broker_whose_last_directory_failed_is_fenced(three: Any) -> None:
    assert three.heartbeat(1, offline_log_dirs=[A, B]).is_fenced
    assert three.state() == (2, (2, 3))
    assert three.heartbeat(1, offline_log_dirs=[A, B]).is_fenced
    assert three.heartbeat(1, offline_log_dirs=[A, B], want_shut_down=True).should_shut_down


def test_assignment_to_an_offline_directory_moves_the_leadership(driver: Any) -> None:
    driver.up(1, 2, log_dirs=[A, B])
    driver.create(assignments=[[1, 2]])
    driver.heartbeat(1, offline_log_dirs=[A])
    assert driver.state() == (1, (1, 2)), "the controller does not know yet where it is"
    driver.assign(1, A)
    assert driver.state() == (2, (2,))
    assert directories(driver) == (A, UNASSIGNED_DIRECTORY)


def test_lost_replica_comes_back_when_it_has_a_directory_again(driver: Any) -> None:
    driver.up(1, log_dirs=[A, B])
    driver.create(assignments=[[1]])
    driver.assign(1, LOST_DIRECTORY)
    assert driver.state() == (-1, (1,))
    driver.assign(1, B)
    assert driver.state() == (1, (1,))


def test_assignment_has_an_error_for_each_partition_that_it_cannot_be_made_for(three: Any) -> None:
    three.create("u", assignments=[[2]])
    assert three.assign(1, A, "u") is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert three.assign(1, A, "t", 7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_assignment_with_an_id_that_is_none_is_refused_whole(three: Any) -> None:
    with pytest.raises(TidelogError, match="16 bytes"):
        three.assign(1, b"short")


def test_replica_in_an_offline_directory_is_described_as_offline(three: Any) -> None:
    three.heartbeat(2, offline_log_dirs=[A])
    described = topic_metadata(three.image, three.image.topics["t"])
    assert list(described.partitions[0].offline_replicas) == [2]


def test_directories_of_partitions_survive_a_snapshot(three: Any) -> None:
    three.heartbeat(1, offline_log_dirs=[A])
    image = three.controller.committed
    assert MetadataImage.from_records(image.offset, image.epoch, image.to_records()) == image


def test_next_leader_looks_at_what_is_in_a_failed_directory_whose_id_another_broker_has_too(driver: Any) -> None:
    kept, shared = b"k" * 16, b"s" * 16
    driver.up(1, log_dirs=[kept, shared])
    driver.up(2, log_dirs=[shared, b"o" * 16])
    driver.create("t", assignments=[[1, 2]])
    driver.assign(1, shared)
    failure = BrokerRegistrationChangeRecord(1, driver.image.brokers[1].broker_epoch, log_dirs=(kept,))
    image = driver.image.apply(driver.image.offset + 1, driver.epoch, [failure])
    assert [(topic.name, index) for topic, index, _ in doubtful(image)] == [("t", 0)]
