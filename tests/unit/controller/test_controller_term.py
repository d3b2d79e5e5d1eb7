"""A controller's terms: announcing, serving, writing and answering, event by event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from topic_ids import SequentialTopicIds

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.brokers import BrokerHeartbeatRequest, RegisterBrokerRequest
from tidelog_foundation.requests.features import FeatureRange
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.controller.term.backlog import WriteLimits
from tidelog_quorum.controller.term.commands import (
    Answer,
    Command,
    Encode,
    Fail,
    Handle,
    Later,
    Propose,
    Refuse,
    TermBegan,
)
from tidelog_quorum.controller.term.events import (
    Cancelled,
    CommitAwaited,
    Committed,
    Encoded,
    EntryRead,
    Event,
    Handled,
    HandlingFailed,
    LeaderChanged,
    LeadershipWatched,
    ProposalFailed,
    Proposed,
    SnapshotRead,
    Submitted,
    Tick,
)
from tidelog_quorum.controller.term.states import Announcing, Elected, Following, Serving, Starting
from tidelog_quorum.controller.term.term import ControllerTerm
from tidelog_quorum.metadata.codec import decode_batch, encode_batch
from tidelog_quorum.metadata.features import SUPPORTED_FEATURES
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import FeatureLevelRecord, MetadataRecord, NoOpRecord
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch

SESSION_MS = 400
TICK_MS = 20


def levels(*names: str) -> list[MetadataRecord]:
    return [FeatureLevelRecord(name, 1) for name in names]


def not_controller() -> TidelogError:
    return TidelogError(ErrorCode.NOT_CONTROLLER, "another one leads")


class World:
    """A core with a log below it: proposals are taken, nothing is committed and no turn ends unless a test says so."""

    def __init__(self, limits: WriteLimits | None = None) -> None:
        controller = Controller(ControllerConfig("c1", SESSION_MS), SequentialTopicIds())
        self.term = ControllerTerm(controller, SESSION_MS, 0, limits)
        self.now_ms = 0
        self.epoch = 0
        self.log: list[CommittedEntry] = []
        self.committed = 0
        self.later: list[Event] = []
        self.answers: dict[int, object] = {}
        self.commands: list[Command] = []
        self.refuses_proposals: TidelogError | None = None

    def step(self, event: Event) -> list[Command]:
        """Take an event; proposals are answered at once, all other commands are kept."""
        taken: list[Command] = []
        pending = [event]
        while pending:
            for command in self.term.step(pending.pop(0), self.now_ms):
                taken.append(command)
                match command:
                    case Propose(payload, epoch):
                        pending.append(self._propose(payload, epoch))
                    case Answer(request_id, response):
                        self.answers[request_id] = response
                    case Refuse(request_id, error):
                        self.answers[request_id] = error.code if isinstance(error, TidelogError) else error
                    case Later(event):
                        self.later.append(event)
        self.term.check_invariants()
        self.commands += taken
        return taken

    def turn(self) -> list[Command]:
        """Let other work have its turn."""
        later, self.later = self.later, []
        return [command for event in later for command in self.step(event)]

    def settle(self) -> None:
        while self.later:
            self.turn()

    def elect(self, leader_id: int | None = 1) -> None:
        self.epoch += 1
        self.step(LeaderChanged(LeaderAndEpoch(leader_id, self.epoch, leader_id == 1)))
        if leader_id is not None:
            self.log.append(CommittedEntry(len(self.log) + 1, self.epoch, b""))

    def commit(self, count: int | None = None) -> list[Command]:
        entries = self.log[self.committed :][:count]
        self.committed += len(entries)
        return self.step(Committed(entries)) if entries else []

    def serve(self) -> None:
        self.elect()
        while self.term.state != Serving(self.epoch):
            self.turn()
            self.commit()
        self.commit()
        self.commands.clear()

    def submit(self, request_id: int, records: Sequence[MetadataRecord] = (), **fields: Any) -> list[Command]:
        """Submit a request that is handled at once; its response is its id."""
        commands = self.step(Submitted(request_id))
        assert Handle(request_id, is_long=False) in commands
        return commands + self.step(Handled(Result(records, request_id, **fields)))

    def written(self, start: int) -> list[list[MetadataRecord]]:
        return [list(decode_batch(entry.payload)) for entry in self.log[start:]]

    def _propose(self, payload: bytes, epoch: int) -> Event:
        if self.refuses_proposals is not None:
            return ProposalFailed(self.refuses_proposals)
        assert epoch == self.epoch
        self.log.append(CommittedEntry(len(self.log) + 1, epoch, payload))
        return Proposed(len(self.log))


@pytest.fixture
def world() -> World:
    serving = World()
    serving.serve()
    return serving


def kinds(commands: Iterable[Command]) -> list[str]:
    return [type(command).__name__ for command in commands]


def test_new_leader_announces_itself_starts_the_cluster_and_serves_in_this_order() -> None:
    world = World()
    assert world.term.state == Following()
    world.elect()
    assert world.term.state == Elected(1)
    assert len(world.log) == 1, "the engine's step ends before anything is proposed"
    world.turn()
    assert world.term.state == Announcing(1, 2)
    assert world.written(1) == [[NoOpRecord()]]
    world.commit(1)
    assert world.term.state == Announcing(1, 2), "only its own entry tells that it has seen everything"
    assert TermBegan(1, 2) in world.commit()
    assert world.term.state == Starting(1)
    world.turn()
    assert world.term.state == Serving(1)
    assert len(world.log) == 3, "the first records of a cluster"
    world.elect()
    world.turn()
    world.commit()
    world.turn()
    assert world.term.state == Serving(2)
    assert len(world.log) == 5, "the engine's entry and the announcement alone"


def test_requests_wait_until_a_new_leader_serves_and_are_handled_in_their_order() -> None:
    world = World()
    world.elect()
    assert world.step(Submitted(1)) == []
    assert world.step(Submitted(2)) == []
    world.turn()
    world.commit()
    assert Handle(1, is_long=False) in world.turn()
    assert kinds(world.step(Handled(Result([], "one")))) == ["Later"]
    assert Handle(2, is_long=False) in world.turn(), "other work has its turn between two requests"


def test_requests_are_refused_when_another_controller_leads_or_comes_to_lead() -> None:
    world = World()
    world.step(Submitted(1))
    world.elect()
    world.step(Submitted(2))
    world.step(LeadershipWatched(3))
    world.elect(2)
    assert world.answers == dict.fromkeys((1, 2, 3), ErrorCode.NOT_CONTROLLER)


def test_announcement_of_an_epoch_that_has_ended_is_not_proposed() -> None:
    world = World()
    world.elect()
    world.elect(2)
    world.turn()
    assert not any(isinstance(command, Propose) for command in world.commands)
    world.elect()
    world.refuses_proposals = not_controller()
    world.turn()
    assert world.term.state == Elected(3), "the engine tells the next leader"
    assert not any(isinstance(command, Fail) for command in world.commands)


def test_engine_that_fails_to_take_the_announcement_ends_the_process() -> None:
    world = World()
    world.elect()
    world.refuses_proposals = TidelogError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk failed")
    assert world.turn()[-1] == Fail(world.refuses_proposals)


def test_answer_waits_for_all_that_the_request_could_see(world: World) -> None:
    world.submit(1, levels("a"))
    world.submit(2)
    assert world.answers == {}
    world.commit()
    assert world.answers == {1: 1, 2: 2}
    world.submit(3)
    assert world.answers[3] == 3


def test_answers_that_wait_are_refused_when_the_leadership_ends(world: World) -> None:
    world.submit(1, levels("a"))
    world.step(CommitAwaited(2, len(world.log)))
    world.step(LeadershipWatched(3))
    world.elect()
    assert world.answers == dict.fromkeys((1, 2, 3), ErrorCode.NOT_CONTROLLER)


def test_handler_that_raises_refuses_its_request_alone(world: World) -> None:
    world.step(Submitted(1, is_long=True))
    world.step(Submitted(2))
    world.step(HandlingFailed(TidelogError(ErrorCode.INVALID_REQUEST, "no")))
    assert world.answers == {1: ErrorCode.INVALID_REQUEST}
    assert world.turn() == [Handle(2, is_long=False)]


def test_request_that_is_handled_when_the_epoch_ends_is_not_written_in_the_next(world: World) -> None:
    world.step(Submitted(1, is_long=True))
    written = len(world.log)
    world.serve()
    written = len(world.log)
    world.step(Handled(Result(levels("late"), None)))
    assert len(world.log) == written
    assert world.answers == {1: ErrorCode.NOT_CONTROLLER}


def test_no_request_is_handled_while_another_one_is(world: World) -> None:
    world.step(Submitted(1, is_long=True))
    assert world.step(Submitted(2)) == []
    assert Handle(2, is_long=False) not in world.step(Cancelled(1)), "the thread still looks at the controller"
    world.step(Handled(Result(levels("gone"), None)))
    assert world.turn() == [Handle(2, is_long=False)]
    assert "gone" not in world.term.controller.latest.feature_levels
    assert 1 not in world.answers


def test_request_that_waits_is_forgotten_when_its_client_goes(world: World) -> None:
    world.step(Submitted(1, is_long=True))
    world.step(Submitted(2))
    world.step(Cancelled(2))
    world.step(Handled(Result([], "one")))
    assert world.turn() == []
    assert world.answers == {1: "one"}


def test_split_result_lets_other_work_have_its_turn_and_no_request(world: World) -> None:
    world = World(WriteLimits(records_per_slice=2))
    world.serve()
    start = len(world.log)
    world.submit(1, levels("a", "b", "c"), atomic=False)
    assert world.step(Submitted(2)) == []
    assert world.written(start) == [levels("a", "b")]
    world.turn()
    assert world.written(start) == [levels("a", "b"), levels("c")]
    world.settle()
    assert Handle(2, is_long=False) in world.commands


def test_preparations_come_before_the_entry_and_not_at_all_when_that_is_too_large() -> None:
    world = World(WriteLimits(records_per_slice=1, records_per_operation=2, entry_bytes=60))
    world.serve()
    start = len(world.log)
    world.submit(1, levels("c", "d"), preparations=levels("a", "b"))
    assert isinstance(world.commands[-1], Encode), "too many for the event loop"
    world.step(Encoded(encode_batch(levels("c", "d"))))
    world.settle()
    assert world.written(start) == [levels("a"), levels("b"), levels("c", "d")]
    start = len(world.log)
    world.submit(2, levels("c", "d", "e"), preparations=levels("a"))
    world.settle()
    world.submit(3, levels("f" * 60), preparations=levels("a"))
    assert world.answers == {2: ErrorCode.POLICY_VIOLATION, 3: ErrorCode.POLICY_VIOLATION}
    assert len(world.log) == start


def test_records_that_cannot_be_encoded_refuse_their_request_alone(world: World) -> None:
    world.step(Submitted(1))
    [refusal] = world.step(Handled(Result([FeatureLevelRecord("a", 1 << 40)], None)))
    assert isinstance(refusal, Refuse)
    assert isinstance(refusal.error, ValueError)
    world.submit(2)
    assert world.answers[2] == 2


def test_client_that_goes_between_two_slices_leaves_what_is_written() -> None:
    world = World(WriteLimits(records_per_slice=1))
    world.serve()
    start = len(world.log)
    world.submit(1, levels("a", "b"), atomic=False)
    world.step(Cancelled(1))
    world.settle()
    assert world.written(start) == [levels("a")]
    assert 1 not in world.answers


def test_slices_and_requests_wait_while_the_backlog_is_full() -> None:
    world = World(WriteLimits(records_per_slice=1, uncommitted_entries=1))
    world.serve()
    start = len(world.log)
    world.submit(1, levels("a", "b"), atomic=False)
    world.step(Submitted(2))
    world.settle()
    assert world.written(start) == [levels("a")]
    world.commit()
    world.settle()
    assert world.written(start) == [levels("a"), levels("b")]
    assert Handle(2, is_long=False) not in world.commands
    world.commit()
    world.settle()
    assert Handle(2, is_long=False) in world.commands
    assert world.answers == {1: 1}


@pytest.mark.parametrize("leader_id", [1, 2, None])
def test_slice_that_waits_for_room_is_refused_when_the_epoch_ends(leader_id: int | None) -> None:
    world = World(WriteLimits(records_per_slice=1, uncommitted_bytes=1))
    world.serve()
    world.submit(1, levels("a", "b"), atomic=False)
    world.settle()
    world.elect(leader_id)
    assert world.answers == {1: ErrorCode.NOT_CONTROLLER}


def test_proposal_that_fails_refuses_its_request(world: World) -> None:
    world.refuses_proposals = not_controller()
    world.submit(1, levels("a"))
    world.refuses_proposals = TidelogError(ErrorCode.KAFKA_STORAGE_ERROR, "full")
    world.submit(2, levels("a"))
    assert world.answers == {1: ErrorCode.NOT_CONTROLLER, 2: ErrorCode.KAFKA_STORAGE_ERROR}


def register(world: World) -> None:
    features = [
        FeatureRange(name=f.name, min_level=f.min_level, max_level=f.max_level) for f in SUPPORTED_FEATURES.values()
    ]
    controller = world.term.controller
    request = RegisterBrokerRequest(
        broker_id=7,
        cluster_id="c1",
        incarnation_id=b"i" * 16,
        endpoint=Endpoint(host="h", port=1),
        features=tuple(features),
    )
    epoch = controller.next_offset
    world.step(Submitted(90))
    world.step(Handled(controller.handle(request, world.now_ms)))
    world.commit()
    heartbeat = BrokerHeartbeatRequest(broker_id=7, broker_epoch=epoch, current_metadata_offset=epoch)
    world.step(Submitted(91))
    world.step(Handled(controller.handle(heartbeat, world.now_ms)))
    world.commit()
    assert not world.term.controller.committed.brokers[7].fenced  # type: ignore[index]


def pass_time(world: World, *steps_ms: int) -> None:
    for step_ms in steps_ms:
        world.now_ms += step_ms
        world.step(Tick())
        world.settle()
        world.commit()


def test_ticks_fence_a_silent_broker_and_are_due_one_after_the_other(world: World) -> None:
    register(world)
    world.step(Tick())
    assert world.later == [], "it is not due"
    world.now_ms += TICK_MS
    world.step(Tick())
    assert world.term.next_deadline_ms is None
    world.settle()
    assert world.term.next_deadline_ms == 2 * TICK_MS
    pass_time(world, *[100] * 4)
    assert world.term.controller.committed.brokers[7].fenced  # type: ignore[index]


def test_tick_that_comes_late_prolongs_the_sessions(world: World) -> None:
    register(world)
    pass_time(world, 50 * SESSION_MS)
    assert not world.term.controller.committed.brokers[7].fenced  # type: ignore[index]


def test_tick_ends_when_the_leadership_does(world: World) -> None:
    register(world)
    pass_time(world, 100, 100, 100)
    world.now_ms += 99
    world.step(Tick())
    world.elect(2)
    world.settle()
    assert world.term.next_deadline_ms is not None
    assert not any(isinstance(command, Fail) for command in world.commands)


def test_follower_takes_over_what_others_read(world: World) -> None:
    world.elect(2)
    world.commit()
    image = world.term.controller.committed
    entry = CommittedEntry(image.offset + 1, world.epoch, encode_batch(levels("large")))
    after = image.apply(entry.index, entry.term, levels("large"))
    assert kinds(world.step(EntryRead(entry, after))) == ["Publish"]
    assert world.term.controller.committed is after
    snapshot = MetadataImage().apply(entry.index + 10, world.epoch, levels("x"))
    world.step(SnapshotRead(snapshot))
    assert world.term.controller.committed is snapshot
