"""Log directories of brokers: where replicas are, and what follows when a directory fails (KIP-858)."""

from __future__ import annotations

from typing import Any

import pytest
from request_values import code_of

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.brokers import RegisterBrokerRequest
from tidelog_quorum.controller.elections import possibly_unsettled
from tidelog_quorum.metadata.description import topic_metadata
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import BrokerRegistrationChangeRecord

A, B = b"a" * 16, b"b" * 16


def directories(driver: Any, name: str = "t", index: int = 0) -> tuple[bytes, ...]:
    """Return a partition's directories by the tests' names for them; each broker has its own ids."""
    return tuple(map(plain, driver.partition(name, index).directories))


def log_dirs(driver: Any, broker_id: int) -> tuple[bytes, ...]:
    return tuple(map(plain, driver.image.brokers[broker_id].log_dirs))


def plain(directory: bytes) -> bytes:
    return directory if directory in (UNASSIGNED_DIRECTORY, LOST_DIRECTORY) else directory[-1:] * 16


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
    assert log_dirs(three, 1) == (B,)
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
    assert code_of(result.error) is ErrorCode.INELIGIBLE_REPLICA
    assert "log directory of broker 2 is offline" in result.error.message


def test_last_member_of_an_isr_stays_without_a_leader_while_its_directory_is_offline(three: Any) -> None:
    assert three.alter(1, [1]).error is None
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
    assert three.alter(2, [1, 2, 3]).error is None
    assert three.state() == (2, (1, 2, 3))


def test_same_process_cannot_bring_a_failed_directory_back(three: Any) -> None:
    three.heartbeat(1, offline_log_dirs=[A])
    three.register(1, log_dirs=[A, B])
    assert log_dirs(three, 1) == (B,)


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
    assert MetadataImage().apply(image.offset, image.epoch, image.to_records()) == image


def test_next_leader_looks_at_what_is_in_a_failed_directory_whose_id_another_broker_has_too(driver: Any) -> None:
    kept, shared = b"k" * 16, b"s" * 16
    driver.up(1, log_dirs=[kept, shared])
    driver.up(2, log_dirs=[b"o" * 16])
    driver.create("t", assignments=[[1, 2]])
    driver.assign(1, shared)
    first, second = driver.image.brokers[1], driver.image.brokers[2]
    driver.put(BrokerRegistrationChangeRecord(2, second.broker_epoch, log_dirs=(*second.log_dirs, first.log_dirs[1])))
    failure = BrokerRegistrationChangeRecord(1, first.broker_epoch, log_dirs=first.log_dirs[:1])
    image = driver.image.apply(driver.image.offset + 1, driver.epoch, [failure])
    assert [(topic.name, index) for topic, index, _ in possibly_unsettled(image)] == [("t", 0)]


@pytest.mark.parametrize("number", [0, 1, 2, 99])
def test_registration_is_refused_with_a_reserved_directory_id(driver: Any, number: int) -> None:
    with pytest.raises(TidelogError, match="reserved") as refusal:
        driver.register(1, log_dirs=[A, number.to_bytes(16, "big")])
    assert refusal.value.code is ErrorCode.INVALID_REGISTRATION
    assert not driver.image.brokers


def test_registration_is_refused_with_a_directory_named_twice(driver: Any) -> None:
    with pytest.raises(TidelogError, match="named 2 times") as refusal:
        driver.register(1, log_dirs=[A, B, A])
    assert refusal.value.code is ErrorCode.INVALID_REGISTRATION


def test_registration_is_refused_with_another_broker_s_directory_until_that_has_it_no_more(driver: Any) -> None:
    driver.up(1, log_dirs=[A, B])
    moved = driver.image.brokers[1].log_dirs[0]
    request = RegisterBrokerRequest(
        broker_id=2,
        cluster_id="c1",
        incarnation_id=bytes(16),
        endpoint=Endpoint(host="h", port=1),
        log_dirs=(b"c" * 16, moved),
    )
    with pytest.raises(TidelogError, match="broker 1 is registered with it") as refusal:
        driver.do(driver.controller.handle, request)
    assert refusal.value.code is ErrorCode.INVALID_REGISTRATION
    driver.now_ms += 9_000
    driver.register(1, incarnation=2, log_dirs=[B])
    driver.do(driver.controller.handle, request)
    assert driver.image.brokers[2].log_dirs == (b"c" * 16, moved)


def test_registration_again_keeps_its_own_directories(driver: Any) -> None:
    driver.up(1, log_dirs=[A, B])
    driver.now_ms += 9_000
    driver.restart(1, log_dirs=[B, A])
    assert log_dirs(driver, 1) == (B, A)
