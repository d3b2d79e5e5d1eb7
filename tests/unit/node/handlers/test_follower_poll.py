"""The polls of followers in few steps have the answers and leave the state of the way of all others."""

import dataclasses
import logging
from types import SimpleNamespace

import pytest
from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.topic_permissions import AUTHORIZERS, USERS, Permissions, audit_lines
from unit.node.handlers.test_fetch_session_model import BATCH, FOLLOWERS, PARTITIONS, World

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.acls import AclPermissionType
from tidelog_node.event_loop import Pending
from tidelog_node.fetching import FetchRequest, FetchSpec, SessionStep
from tidelog_node.handlers import fetch as fetch_module
from tidelog_node.handlers.fetch import authorize, begin_fetch
from tidelog_node.handlers.fetch_sessions import FetchSessions, OpenSession
from tidelog_node.handlers.follower_poll import begin_poll
from tidelog_node.handlers.response_budget import ResponseBudget
from tidelog_node.replication.replica_selector import RACK_AWARE_SELECTOR, ReplicaSelector

TOPIC_ID = b"i" * 16
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
USER_OF = dict(zip(FOLLOWERS, USERS, strict=True))
ROOM = 10_000


class Timers:
    """The timers and the next step of a loop that the test turns."""

    def __init__(self, clock):
        self.clock = clock
        self.soon = []
        self.timers = []

    def run(self):
        while self.soon:
            self.soon.pop(0)()

    def fire(self):
        due = [timer for timer in self.timers if timer.due_ms <= self.clock.now_ms]
        self.timers = [timer for timer in self.timers if timer.due_ms > self.clock.now_ms]
        for timer in due:
            if not timer.is_cancelled:
                timer.call()
        self.run()


class Timer:
    def __init__(self, due_ms, call):
        self.due_ms, self.call, self.is_cancelled = due_ms, call, False

    def cancel(self):
        self.is_cancelled = True


class ManualSession(OpenSession):
    def __init__(self, state, timers):
        super().__init__(state)
        self._timers = timers

    def call_soon(self, call):
        self._timers.soon.append(call)

    def call_later(self, delay_s, call):
        timer = Timer(self._timers.clock.now_ms + round(delay_s * 1000), call)
        self._timers.timers.append(timer)
        return timer


class Polls(World):
    """The partitions of one leader, whose followers poll in sessions. Each follower has one poll at most."""

    def __init__(self, is_short, is_rack_aware, authorizer):
        super().__init__(has_sessions=True)
        self.is_short = is_short
        self.calls = 0
        """The number of polls that were answered or waited in few steps."""
        self.timers = Timers(self.clock)
        numbers = iter(range(1, 1_000))
        sessions = FetchSessions(draw_id=lambda: next(numbers), open_session=lambda s: ManualSession(s, self.timers))
        selector = ReplicaSelector(RACK_AWARE_SELECTOR) if is_rack_aware else ReplicaSelector()
        names = SimpleNamespace(image=self.context.metadata.image, topic_name=lambda topic: "t")
        self.context = dataclasses.replace(
            self.context,
            fetch_sessions=sessions,
            metadata=names,
            replica_selector=selector,
            response_budget=ResponseBudget(ROOM),
        )
        self.steps = dict.fromkeys(FOLLOWERS, SessionStep(0, 0))
        self.waiting = dict.fromkeys(FOLLOWERS)
        self.ends = {f: dict.fromkeys(PARTITIONS, 0) for f in FOLLOWERS}
        self.epochs = {f: dict.fromkeys(PARTITIONS, 0) for f in FOLLOWERS}
        self.answers = {follower: [] for follower in FOLLOWERS}
        self.permissions = authorizer and Permissions(self.context.metadata, AUTHORIZERS[authorizer]())
        for follower in FOLLOWERS:
            self.permit(follower, ALLOW)

    def poll(self, follower, named, min_bytes, wait_ms):
        step = self.steps[follower]
        indexes = PARTITIONS if step.epoch == 0 else named
        request = FetchRequest(
            {(TOPIC_ID, index): self.spec(follower, index) for index in indexes},
            1 << 20,
            wait_ms,
            min_bytes,
            (follower, self.replica_epochs[follower]),
            session=step,
            uses_topic_ids=True,
        )
        if self.permissions is not None:
            authorize(request, self.permissions.access(USER_OF[follower]))
        begun = begin_fetch(self.context, request, lambda response: response)
        if isinstance(begun, Pending):
            self.waiting[follower] = begun
            begun.then(lambda done: self.take(follower, done))
            self.steps[follower] = step._replace(epoch=step.epoch + 1)
        else:
            self.take_response(follower, begun, step)

    def spec(self, follower, index):
        last_epoch = 0 if self.ends[follower][index] else None
        return FetchSpec(TOPIC_ID, self.ends[follower][index], 200, self.epochs[follower][index], last_epoch, 0)

    def take(self, follower, done):
        is_latest = self.waiting[follower] is done
        if done.is_cancelled:
            self.answers[follower].append("cancelled")
        else:
            self.note(follower, done.result())
            if is_latest:
                self.follow(follower, done.result())
        if is_latest:
            self.waiting[follower] = None

    def take_response(self, follower, response, step):
        self.note(follower, response)
        self.steps[follower] = SessionStep(response.session_id, step.epoch + 1 if response.session_id else 0)
        self.follow(follower, response)

    def follow(self, follower, response):
        if response.error is not None:
            self.steps[follower] = SessionStep(0, 0)
        for results in response.topics.values():
            for result in results:
                self.ends[follower][result.index] += len(result.records) // len(BATCH)
                if result.error is not None and result.error.code is ErrorCode.FENCED_LEADER_EPOCH:
                    self.epochs[follower][result.index] = self.partitions[result.index].state.leader_epoch

    def note(self, follower, response):
        results = [
            (topic, dataclasses.replace(r, error=r.error and r.error.code))
            for topic, found in response.topics.items()
            for r in found
        ]
        error = response.error and response.error.code
        self.answers[follower].append((self.clock.now_ms, results, error))

    def end_wait(self, follower):
        step = self.steps[follower]
        if self.waiting[follower] is not None:
            ending = SessionStep(step.id, step.epoch - 1, ends_wait=True)
            begin_fetch(self.context, FetchRequest({}, 0, session=ending), lambda response: response)

    def cancel(self, follower):
        if self.waiting[follower] is not None:
            self.waiting[follower].cancel()

    def throttle(self, index, is_throttled):
        partition = self.partitions[index]
        partition.throttled = dataclasses.replace(partition.throttled, leader=is_throttled)

    def take_room(self, size):
        budget = self.context.response_budget
        budget.take(size - budget.taken // 2)
        budget.pass_on()

    def permit(self, follower, permission):
        if self.permissions is not None:
            self.permissions.set(USER_OF[follower], permission)

    def follow_acls(self, follower):
        """Let the authorizer have the latest ACLs, while polls wait."""
        if self.permissions is not None:
            self.permissions.access(USER_OF[follower])

    def lose_session(self, follower):
        self.evict_session(self.steps[follower].id)

    def evict_session(self, session_id):
        if self.context.fetch_sessions.cache.remove(session_id) is not None:
            self.context.fetch_sessions._open.pop(session_id).close()

    def wait(self, ms):
        self.clock.now_ms += ms
        self.timers.fire()

    def do(self, name, *arguments):
        getattr(self, name)(*arguments)
        self.timers.run()

    def view(self):
        return {
            "leaders": {index: self.leader_view(index) for index in PARTITIONS},
            "waiting": {follower: pending is not None for follower, pending in self.waiting.items()},
            "taken": self.context.response_budget.taken,
            "sent": self.partitions[0].traffic.replicated_out,
            "steps": self.steps,
            "decisions": self.permissions and self.permissions.counts(),
        }


INDEXES, NODES = st.sampled_from(PARTITIONS), st.sampled_from(FOLLOWERS)
POLL = st.tuples(
    st.just("poll"),
    NODES,
    st.sampled_from(((0,), (0,), (0,), (1,), (0, 1), ())),
    st.sampled_from((1, 1, 1, 0, 100)),
    st.sampled_from((500, 500, 0)),
)
STEPS = st.one_of(
    POLL,
    POLL,
    POLL,
    st.tuples(st.just("append"), st.sampled_from((0, 0, 0, 1))),
    st.tuples(st.just("append"), st.sampled_from((0, 0, 0, 1))),
    st.tuples(st.just("wait"), st.sampled_from((1, 100, 600))),
    st.tuples(st.just("end_wait"), NODES),
    st.tuples(st.just("cancel"), NODES),
    st.tuples(st.just("throttle"), INDEXES, st.booleans()),
    st.tuples(st.just("take_room"), st.sampled_from((0, 0, ROOM))),
    st.tuples(st.just("permit"), NODES, st.sampled_from((ALLOW, ALLOW, DENY, None))),
    st.tuples(st.just("follow_acls"), NODES),
    st.tuples(st.just("lose_session"), NODES),
    st.tuples(st.just("elect"), INDEXES),
    st.tuples(st.just("delete"), INDEXES),
    st.tuples(st.just("look_for_lag")),
    st.tuples(st.just("answer_proposal"), INDEXES, st.booleans()),
    st.tuples(st.just("restart_follower"), NODES),
    st.tuples(st.just("eligible"), st.sampled_from((FOLLOWERS, FOLLOWERS[:1]))),
)


WAITING = ("poll", FOLLOWERS[0], (0,), 1, 500)
FREE = ("take_room", 0)
DENIED_WHILE_WAITING = [FREE, WAITING, ("permit", FOLLOWERS[0], DENY), ("follow_acls", FOLLOWERS[1]), ("append", 0)]
THROTTLED_WHILE_WAITING = [FREE, WAITING, ("throttle", 0, True), ("append", 0), ("throttle", 0, False), WAITING]


@pytest.fixture
def worlds(monkeypatch):
    """Return a function that makes a world with polls in few steps and one without them."""
    current = None

    def begin(*arguments):
        if not current.is_short:
            return None
        answer = begin_poll(*arguments)
        current.calls += answer is not None
        return answer

    def make(is_rack_aware=False, authorizer=None):
        return Polls(True, is_rack_aware, authorizer), Polls(False, is_rack_aware, authorizer)

    def do(world, *step):
        nonlocal current
        current = world
        world.do(*step)

    monkeypatch.setattr(fetch_module, "begin_poll", begin)
    return SimpleNamespace(make=make, do=do)


def test_polls_in_few_steps_have_the_outcome_of_the_way_of_all_others(worlds):
    @settings(max_examples=examples(300), deadline=None)
    @given(
        history=st.lists(STEPS, max_size=40),
        is_rack_aware=st.sampled_from((False, False, True)),
        authorizer=st.sampled_from((None, *AUTHORIZERS)),
        audit_level=st.sampled_from((logging.INFO, logging.DEBUG)),
    )
    @example(history=DENIED_WHILE_WAITING, is_rack_aware=False, authorizer="standard", audit_level=logging.INFO)
    @example(history=THROTTLED_WHILE_WAITING, is_rack_aware=False, authorizer="standard", audit_level=logging.DEBUG)
    @example(history=THROTTLED_WHILE_WAITING, is_rack_aware=False, authorizer="own", audit_level=logging.INFO)
    def hold(history, is_rack_aware, authorizer, audit_level):
        both = worlds.make(is_rack_aware, authorizer)
        logs = [[], []]
        for step in [("poll", follower, (), 1, 0) for follower in FOLLOWERS] + history:
            for world, log in zip(both, logs, strict=True):
                with audit_lines(audit_level) as lines:
                    worlds.do(world, *step)
                log += lines
            short, general = both
            assert short.answers == general.answers, step
            assert short.view() == general.view(), step
            assert logs[0] == logs[1], step

    hold()


def test_a_record_passes_to_all_followers_in_few_steps(worlds):
    short, general = worlds.make()
    for world in (short, general):
        for follower in FOLLOWERS:
            worlds.do(world, "poll", follower, (), 1, 0)
        for _ in range(3):
            for follower in FOLLOWERS:
                worlds.do(world, "poll", follower, (0,), 1, 500)
            worlds.do(world, "append", 0)
        for follower in FOLLOWERS:
            worlds.do(world, "poll", follower, (0,), 1, 500)
    assert short.answers == general.answers
    assert short.partitions[0].high_watermark == 3
    assert (short.calls, general.calls) == (8, 0)
