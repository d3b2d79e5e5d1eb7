"""A node's replicas through changes of the metadata and failures of its disks."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest
from hosting_script import (
    DISK_FAILED,
    DISK_FULL,
    FILES_REFUSED,
    IDS,
    KEY,
    LAST,
    NOBODY,
    ONE,
    OTHER_TOPIC,
    RULE,
    THREE,
    TOPIC,
    TWO,
    A,
    B,
    Host,
    brokers,
)

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_node.broker.report import Report
from tidelog_node.hosting.commands import (
    AddToFetcher,
    AssignDirectory,
    BeginFetcher,
    CancelMove,
    ChangeBrokers,
    ChangeConfigs,
    ChangeEligible,
    ChangeRegistration,
    CreateLogs,
    DeleteReplica,
    EndFetcher,
    FailDirectory,
    FailNode,
    MeasureSpace,
    OpenLog,
    PauseFetches,
    RemoveFolder,
    RemoveFromFetcher,
    RenameToStray,
    ReportDirectories,
    ResumeFetches,
    ScheduleDeletion,
    TakeOffline,
)
from tidelog_node.hosting.events import (
    AppendRefused,
    DeletionRefused,
    DirectoryPreferred,
    LogOpened,
    OpenRefused,
    ReplicaMoved,
    ReplicaRefused,
    RetryDue,
    TimePassed,
)
from tidelog_quorum.metadata.records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)


@pytest.fixture
def host() -> Host:
    return Host()


def kinds(host: Host) -> list[type]:
    return [type(command) for command in host.look() if not isinstance(command, Report)]


def change(**changes: object) -> PartitionChangeRecord:
    return dataclasses.replace(PartitionChangeRecord(TOPIC, 0), **changes)  # type: ignore[arg-type]


def retry(host: Host) -> None:
    host.run(RetryDue())
    for event in host.core.retries():
        host.run(event)


def step_back(host: Host, successors: frozenset[object] | None = None) -> None:
    host.run(AppendRefused(KEY, DISK_FULL, successors))  # type: ignore[arg-type]


def is_offline(host: Host) -> bool:
    return host.core.offline(KEY) is not None


def test_image_changes_brokers_then_removes_then_settings_then_replicas(host: Host) -> None:
    host.create()
    host.change(TopicRecord("u", OTHER_TOPIC), PartitionRecord(OTHER_TOPIC, 0, (ONE,), (ONE,), ONE))
    host.look()
    host.change(
        change(isr=(ONE,)),
        ConfigRecord(ConfigResourceType.TOPIC, "t", "min.insync.replicas", "1"),
        RemoveTopicRecord(OTHER_TOPIC),
        *brokers(TWO, epoch=2),
    )
    expected = [ChangeBrokers, CancelMove, DeleteReplica, ChangeConfigs, ChangeRegistration, AssignDirectory]
    assert kinds(host) == expected


def test_new_replica_knows_the_brokers_before_its_registration_and_says_where_it_is(host: Host) -> None:
    host.create()
    assert kinds(host) == [ChangeBrokers, OpenLog, ChangeEligible, ChangeRegistration, AssignDirectory]


def test_replica_that_the_controller_knows_in_its_directory_is_not_told_again(host: Host) -> None:
    host.create(directories=(IDS[A], UNASSIGNED_DIRECTORY))
    assert host.assigned() == []


def test_topic_created_again_under_its_name_is_deleted_before_it_is_opened(host: Host) -> None:
    host.create()
    host.look()
    again = PartitionRecord(OTHER_TOPIC, 0, (ONE,), (ONE,), ONE)
    host.change(RemoveTopicRecord(TOPIC), TopicRecord("t", OTHER_TOPIC), again)
    assert kinds(host)[:3] == [CancelMove, DeleteReplica, OpenLog]


def test_many_new_replicas_are_created_together_while_fetches_are_held(host: Host) -> None:
    host.create(partitions=64)
    done = host.look(PauseFetches, CreateLogs, OpenLog, ResumeFetches)
    assert [type(c) for c in done] == [PauseFetches, CreateLogs, *[OpenLog] * 64, ResumeFetches]
    [created] = [c for c in done if isinstance(c, CreateLogs)]
    assert len(created.logs) == 64


def test_log_that_a_rule_does_not_let_open_is_offline_and_not_tried_again(host: Host) -> None:
    host.refuse_to_open(RULE, None)
    host.create()
    assert is_offline(host)
    assert host.assigned() == []
    assert host.core.retries() == []


def test_log_whose_files_refuse_is_lost_to_the_controller_and_opened_again(host: Host) -> None:
    host.refuse_to_open(FILES_REFUSED)
    host.create()
    assert host.assigned() == [(LOST_DIRECTORY, False)]
    with pytest.raises(TidelogError, match="t-0 is offline on node 1: refused"):
        host.core.check_online(KEY)
    retry(host)
    assert not host.look(Report), "one line is enough"
    host.accept(OpenLog)
    retry(host)
    host.core.check_online(KEY)
    assert host.assigned() == [(IDS[A], False)]


def test_replica_that_is_opened_again_has_to_be_where_and_what_it_was(host: Host) -> None:
    host.create()
    host.look()
    host.run(ReplicaRefused(KEY, FILES_REFUSED, LAST))
    assert kinds(host) == [TakeOffline, AssignDirectory]
    assert dict(host.core.offline_states())[KEY].last_state == LAST
    retry(host)
    [opened] = host.look(OpenLog)
    assert isinstance(opened, OpenLog)
    assert (opened.last_state, opened.is_retry, opened.is_in_sync) == (LAST, True, False)


def test_replica_whose_opening_was_given_up_is_opened_again(host: Host) -> None:
    host.create()
    host.run(ReplicaRefused(KEY, FILES_REFUSED, LAST))
    host.refuse(OpenLog, lambda _: None)
    retry(host)
    host.core.check_invariants()
    assert dict(host.core.offline_states())[KEY].last_state == LAST
    host.accept(OpenLog)
    retry(host)
    assert host.open == {KEY: A}


def test_replica_of_a_topic_that_is_gone_is_not_opened_again_and_gives_its_place_back(host: Host) -> None:
    host.create()
    host.run(ReplicaRefused(KEY, FILES_REFUSED, LAST))
    host.look()
    host.change(RemoveTopicRecord(TOPIC))
    assert kinds(host) == [ScheduleDeletion]
    assert host.core.retries() == []


def test_log_that_a_failed_disk_does_not_open_goes_to_another_directory(host: Host) -> None:
    def refuse(command: OpenLog) -> OpenRefused | LogOpened:
        return OpenRefused(command.key, A, DISK_FAILED) if host.place() == A else LogOpened(command.key, B)

    host.refuse(OpenLog, refuse)
    host.create()
    assert kinds(host)[1:5] == [OpenLog, FailDirectory, ReportDirectories, OpenLog]
    assert host.open == {KEY: B}


def test_folder_of_an_earlier_topic_becomes_stray_and_the_log_is_opened(host: Host) -> None:
    host.refuse_to_open(error_for(ErrorCode.INCONSISTENT_TOPIC_ID, "of another topic"))
    host.refuse(RenameToStray, lambda command: (host.accept(OpenLog), None)[1])
    host.create()
    host.accept(RenameToStray)
    assert kinds(host)[1:] == [OpenLog, RenameToStray]


def test_replica_whose_directory_fails_while_it_is_opened_is_offline(host: Host) -> None:
    def open_late(command: OpenLog) -> LogOpened:
        host.fail(A)
        return LogOpened(command.key, A)

    host.refuse(OpenLog, open_late)
    host.create()
    assert is_offline(host)
    assert host.open == {}
    assert host.core.retries() == []


def test_directory_that_fails_takes_its_replicas_with_it_and_the_last_one_the_node(host: Host) -> None:
    host.create()
    host.follow(TWO)
    host.look()
    host.fail(A)
    assert kinds(host) == [RemoveFromFetcher, EndFetcher, TakeOffline, ReportDirectories]
    retry(host)
    host.change(change(leader=ONE))
    assert kinds(host) == []
    host.fail(B)
    assert kinds(host) == [FailNode]


def test_replica_that_the_disk_refuses_takes_its_directory_offline_when_the_disk_has_failed(host: Host) -> None:
    host.create()
    host.run(ReplicaRefused(None, DISK_FAILED, LAST))
    assert is_offline(host)
    assert host.core.retries() == []


def test_last_replica_in_sync_does_not_step_back(host: Host) -> None:
    host.create()
    host.look()
    step_back(host, frozenset())
    assert host.look() == []


def test_replica_on_a_full_disk_steps_back_once_and_copies_nothing(host: Host) -> None:
    host.create()
    host.follow(TWO)
    host.look()
    step_back(host)
    step_back(host)
    assert kinds(host) == [RemoveFromFetcher, EndFetcher, AssignDirectory]
    host.follow(THREE, 2)
    host.change(change(leader=TWO, isr=(TWO,)))
    assert kinds(host) == [ChangeRegistration]


@pytest.mark.parametrize("is_known_there", [True, False])
def test_replica_has_its_place_again_when_there_is_room_and_copies_the_newest_leader(
    host: Host, is_known_there: bool
) -> None:
    host.create(directories=(IDS[A] if is_known_there else UNASSIGNED_DIRECTORY, UNASSIGNED_DIRECTORY))
    step_back(host, frozenset({TWO}))
    host.change(change(leader=TWO, isr=(TWO,), directories=(LOST_DIRECTORY, UNASSIGNED_DIRECTORY)))
    host.follow(TWO)
    host.look()
    host.free = 1_000
    retry(host)
    assert kinds(host) == [MeasureSpace]
    host.free = -1
    retry(host)
    done = host.look()
    assert AssignDirectory(TOPIC, 0, IDS[A], keeps_log=is_known_there) in done
    assert [type(c) for c in done[-2:]] == [BeginFetcher, AddToFetcher]


@pytest.mark.parametrize("record", [change(leader=NOBODY), change(isr=(ONE,))])
def test_replica_has_its_place_again_at_once_when_nobody_else_could_lead(
    host: Host, record: PartitionChangeRecord
) -> None:
    host.create()
    step_back(host, frozenset({TWO}))
    host.look()
    host.change(record)
    assert host.assigned() == [(IDS[A], False)]


def test_new_replica_waits_for_the_folder_of_the_deleted_one_of_its_name(host: Host) -> None:
    host.create()
    host.refuse(DeleteReplica, lambda command: DeletionRefused(command.key, A, 60_000, FILES_REFUSED))
    host.refuse(ScheduleDeletion, lambda command: DeletionRefused(command.key, A, 60_000, FILES_REFUSED))
    host.change(RemoveTopicRecord(TOPIC))
    host.create(topic_id=OTHER_TOPIC)
    assert is_offline(host)
    assert [type(e).__name__ for e in host.core.retries()] == ["RetryFolder", "RetryReplica"]
    retry(host)
    assert is_offline(host)
    host.accept(ScheduleDeletion)
    retry(host)
    assert host.open == {KEY: A}
    assert host.core.retries() == []


def test_folder_that_cannot_be_renamed_is_forgotten_with_its_directory(host: Host) -> None:
    host.create()
    host.refuse(DeleteReplica, lambda command: DeletionRefused(command.key, A, 60_000, FILES_REFUSED))
    host.change(RemoveTopicRecord(TOPIC))
    host.fail(A)
    host.look()
    retry(host)
    assert (kinds(host), host.core.retries()) == ([], [])


@pytest.mark.parametrize("has_failed", [False, True])
def test_folder_of_a_deleted_replica_is_removed_after_its_delay_unless_its_directory_failed(
    host: Host, has_failed: bool
) -> None:
    host.create()
    host.change(RemoveTopicRecord(TOPIC))
    host.now_ms = 59_999
    host.run(TimePassed())
    assert host.look(RemoveFolder) == []
    if has_failed:
        host.fail(A)
    host.now_ms = 60_000
    host.run(TimePassed())
    host.run(TimePassed())
    assert host.look(RemoveFolder) == ([] if has_failed else [RemoveFolder(A / "t-0-delete")])


def test_fetcher_begins_with_its_first_partition_and_ends_with_its_last(host: Host) -> None:
    host.create(partitions=2)
    host.look()
    host.follow(TWO)
    host.follow(TWO, key=("t", 1))
    assert kinds(host) == [BeginFetcher, AddToFetcher, AddToFetcher]
    host.follow(THREE)
    assert kinds(host) == [RemoveFromFetcher, BeginFetcher, AddToFetcher]
    host.lead(("t", 1))
    assert kinds(host) == [RemoveFromFetcher, EndFetcher]
    host.follow(THREE, 2)
    assert kinds(host) == [AddToFetcher]


def test_replica_that_moved_says_so_and_its_folder_is_removed_later(host: Host) -> None:
    host.create(directories=(IDS[A], UNASSIGNED_DIRECTORY))
    host.run(ReplicaMoved(KEY, B, A / "t-0-delete", 10))
    assert host.assigned() == [(IDS[B], True)]
    host.now_ms = 10
    host.run(TimePassed())
    assert host.look(RemoveFolder) == [RemoveFolder(A / "t-0-delete")]


def test_new_replica_goes_where_an_operator_prefers_it(host: Host) -> None:
    host.run(DirectoryPreferred(KEY, B))
    host.create()
    [opened] = host.look(OpenLog)
    assert isinstance(opened, OpenLog)
    assert opened.preferred == B


def test_replica_that_others_hold_now_is_deleted(host: Host) -> None:
    host.create()
    host.look()
    host.change(change(replicas=(TWO, THREE), isr=(TWO,), leader=TWO))
    assert host.look(DeleteReplica) == [DeleteReplica(KEY, is_gone=False)]


@pytest.mark.parametrize("seed", range(20))
def test_replicas_keep_their_invariants_whatever_disks_and_metadata_do(seed: int) -> None:
    rng = random.Random(seed)
    host = Host()
    host.create(partitions=3)
    for _ in range(150):
        _do_something(host, rng)
    for kind in list(host.refusals):
        host.accept(kind)
    retry(host)
    retry(host)
    for index, partition in host.image.topics["t"].partitions.items():
        offline = host.core.offline(("t", index))
        is_lost = offline is not None and offline.last_state is None
        assert ONE not in partition.replicas or ("t", index) in host.open or is_lost


def _do_something(host: Host, rng: random.Random) -> None:
    key = ("t", rng.randrange(3))
    held = key in host.open
    match rng.randrange(11):
        case 0:
            host.refuse_to_open(rng.choice([FILES_REFUSED, DISK_FULL]), rng.choice([A, None]))
        case 1:
            host.refuse(ScheduleDeletion, lambda c: DeletionRefused(c.key, A, 0, FILES_REFUSED))
            host.refuse(DeleteReplica, lambda c: DeletionRefused(c.key, A, 0, FILES_REFUSED))
        case 2:
            host.refusals.clear()
        case 3 if held:
            host.follow(rng.choice([TWO, THREE]), key=key)
        case 4 if held:
            host.lead(key)
        case 5 if held:
            host.run(AppendRefused(key, DISK_FULL, rng.choice([None, frozenset(), frozenset({TWO})])))
        case 6 if held:
            host.run(ReplicaRefused(key, FILES_REFUSED, LAST))
        case 7:
            host.free = rng.choice([0, 1 << 30])
            retry(host)
        case 8:
            replicas = rng.choice([(ONE, TWO), (TWO, THREE)])
            leader = rng.choice([NOBODY, *replicas])
            host.change(PartitionChangeRecord(TOPIC, key[1], isr=replicas, leader=leader, replicas=replicas))
        case 9 if rng.random() < 0.05 and host.place() == A:
            host.fail(Path("/a"))
        case _:
            host.change(*brokers(rng.choice([ONE, TWO, THREE]), epoch=rng.randrange(9)))
