"""The rules by which a node follows the metadata log, as scenarios of events and commands."""

from __future__ import annotations

import pytest

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import NO_BROKER, BrokerId
from tidelog_node.broker.metadata_stream import (
    AdvanceImage,
    BuildImage,
    CloseStream,
    Command,
    End,
    Entry,
    EntryPart,
    Event,
    ImageBuilt,
    MetadataStream,
    OpenStream,
    Responded,
    Started,
    StreamEnded,
    StreamTimings,
    TimePassed,
    UseLeader,
    UseVoters,
)
from tidelog_node.broker.report import Level, Report

VOTERS = {1: ("a", 1), 2: ("b", 1), 3: ("c", 1)}
CONFIGURED = ("a:1", "b:1", "c:1")
LEADER = BrokerId(1)
GONE = StreamEnded(error_for(ErrorCode.NETWORK_EXCEPTION, "connection refused"))


class Node:
    """A stream with its clock; reports and the leader are left out of what a step returns."""

    def __init__(self, number: int = 3) -> None:
        self.core = MetadataStream(BrokerId(number), VOTERS, CONFIGURED, StreamTimings())
        self.now_ms = 1_000
        self.reports: list[Report] = []
        self.leader = BrokerId(0)

    def tell(self, event: Event) -> list[Command]:
        commands = self.core.step(event, self.now_ms)
        self.core.check_invariants()
        self.reports += [c for c in commands if isinstance(c, Report)]
        for command in commands:
            if isinstance(command, UseLeader):
                self.leader = command.leader_id
        return [c for c in commands if not isinstance(c, Report | UseLeader)]

    def pass_time(self, ms: int) -> list[Command]:
        self.now_ms += ms
        return self.tell(TimePassed())

    def next_controller(self) -> OpenStream:
        """Let the pause after a failure pass."""
        assert self.core.next_deadline_ms is not None
        [command] = self.pass_time(self.core.next_deadline_ms - self.now_ms)
        assert isinstance(command, OpenStream)
        return command


def started(offset: int = -1) -> Node:
    """Return a node that has the image at ``offset`` and reads a stream."""
    node = Node()
    node.tell(Started())
    if offset >= 0:
        node.tell(snapshot(offset))
        node.tell(ImageBuilt(offset))
    return node


def entries(*offsets: int, is_continued: bool = False) -> Responded:
    return Responded(LEADER, tuple(EntryPart(i, 4, b"%d" % i, is_continued) for i in offsets))


def snapshot(offset: int, *, begins: bool = True, ends: bool = True, batch: bytes = b"s") -> Responded:
    parts = (EntryPart(offset, 4, batch),)
    return Responded(LEADER, parts, begins_snapshot=begins, ends_snapshot=ends)


@pytest.mark.parametrize(("number", "address"), [(3, "a:1"), (4, "b:1"), (5, "c:1")])
def test_nodes_begin_with_different_controllers(number: int, address: str) -> None:
    assert Node(number).tell(Started()) == [OpenStream(address, 0)]


def test_stream_that_ends_is_followed_by_one_of_the_next_controller_behind_the_last_image() -> None:
    node = started(offset=7)
    assert node.tell(GONE) == [CloseStream()]
    assert node.core.next_deadline_ms == node.now_ms + 50
    assert node.next_controller() == OpenStream("b:1", 8)


def test_pause_grows_with_failures_in_a_row_and_only_the_first_is_worth_a_line() -> None:
    node = started()
    pauses = []
    for _ in range(12):
        node.tell(GONE)
        assert node.core.next_deadline_ms is not None
        pauses.append(node.core.next_deadline_ms - node.now_ms)
        node.next_controller()
    assert pauses[:3] == [50, 100, 150]
    assert max(pauses) == pauses[-1] == 500
    assert [r.level for r in node.reports] == [Level.INFO] + [Level.DEBUG] * 11
    node.tell(entries())
    node.tell(GONE)
    assert node.core.next_deadline_ms == node.now_ms + 50
    assert node.reports[-1].level is Level.INFO


def test_silent_controller_is_left() -> None:
    node = started()
    assert node.pass_time(2_000) == []
    node.tell(entries())
    assert node.pass_time(2_499) == []
    assert node.pass_time(1) == [CloseStream()]
    assert "no usable response for 2.5 s" in node.reports[-1].text % node.reports[-1].arguments


def test_time_in_which_an_image_is_built_is_no_silence() -> None:
    node = started()
    assert node.tell(snapshot(7)) == [BuildImage(7, 4, (b"s",))]
    assert node.core.next_deadline_ms is None
    node.now_ms += 60_000
    assert node.tell(ImageBuilt(7)) == []
    assert node.core.next_deadline_ms == node.now_ms + 2_500


def test_controller_that_knows_no_leader_for_long_is_left_though_it_answers() -> None:
    node = started()
    leaderless = Responded(NO_BROKER)
    assert node.tell(leaderless) == []
    assert node.leader == NO_BROKER
    node.now_ms += 2_000
    assert node.tell(entries()) == [], "there is a leader again"
    for _ in range(2):
        assert node.tell(leaderless) == []
        node.now_ms += 2_000
    assert node.tell(leaderless) == [CloseStream()]


def test_snapshot_counts_when_its_last_part_is_here() -> None:
    node = started()
    assert node.tell(snapshot(7, ends=False, batch=b"1")) == []
    assert node.tell(snapshot(7, begins=False, ends=False, batch=b"2")) == []
    assert node.tell(snapshot(7, begins=False, batch=b"3")) == [BuildImage(7, 4, (b"1", b"2", b"3"))]


def test_entry_counts_when_its_last_part_is_here() -> None:
    node = started(offset=7)
    assert node.tell(entries(8, is_continued=True)) == []
    [command] = node.tell(entries(8, 9))
    assert command == AdvanceImage((Entry(8, 4, (b"8", b"8")), Entry(9, 4, (b"9",))))


def test_parts_do_not_outlive_their_stream() -> None:
    node = started(offset=7)
    node.tell(entries(8, is_continued=True))
    node.tell(GONE)
    node.next_controller()
    assert node.tell(entries(8)) == [AdvanceImage((Entry(8, 4, (b"8",)),))]
    node.tell(ImageBuilt(8))
    node.tell(snapshot(9, ends=False, batch=b"1"))
    node.tell(GONE)
    node.next_controller()
    assert node.tell(entries(9)) == [AdvanceImage((Entry(9, 4, (b"9",)),))]


def test_entries_and_snapshots_that_are_not_newer_are_passed_over() -> None:
    node = started(offset=7)
    assert node.tell(entries(6, 7)) == []
    assert node.tell(snapshot(7)) == []
    assert node.tell(entries(7, 8)) == [AdvanceImage((Entry(8, 4, (b"8",)),))]


def test_new_voters_are_followed_and_those_of_the_configuration_stay_the_last_resort() -> None:
    node = started()
    voters = {2: ("b", 1), 7: ("z", 9)}
    [command] = node.tell(Responded(LEADER, voters=voters))
    assert command == UseVoters(voters)
    assert node.tell(Responded(LEADER, voters=voters)) == [], "they are known"
    followed = []
    for _ in range(4):
        node.tell(GONE)
        followed.append(node.next_controller().address)
    assert followed == ["c:1", "b:1", "z:9", "a:1"], "the node went on from the one that it followed"


def test_controller_of_another_cluster_ends_the_node() -> None:
    node = started()
    error = error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, "cluster x")
    assert node.tell(StreamEnded(error)) == [End(error)]
    assert node.core.next_deadline_ms is None


def test_snapshot_of_a_restored_quorum_ends_the_node_which_would_delete_lost_topics() -> None:
    node = started(5)
    [close, end] = node.tell(
        Responded(LEADER, (EntryPart(10**12, 1_000_000, b"s"),), begins_snapshot=True, ends_snapshot=True)
    )
    assert close == CloseStream()
    assert isinstance(end, End)
    assert "was restored while this node ran" in end.error.message
    assert node.core.next_deadline_ms is None


def test_first_snapshot_may_be_of_any_generation_and_the_next_of_the_same() -> None:
    node = Node()
    node.tell(Started())
    for offset in (10**12, 10**12 + 5):
        part = EntryPart(offset, 1_000_000 + offset % 2, b"s")
        assert node.tell(Responded(LEADER, (part,), begins_snapshot=True, ends_snapshot=True)) == [
            BuildImage(part.offset, part.epoch, (b"s",))
        ]
        node.tell(ImageBuilt(part.offset))
