"""Reads of consumers in few steps have the responses of the way of all others."""

import asyncio
import collections
import dataclasses
import itertools
import logging
from types import SimpleNamespace

import pytest
from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.topic_permissions import AUTHORIZERS, USERS, Permissions, audit_lines
from unit.node.handlers.test_fetch_session_model import BATCH, World

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.acls import AclPermissionType
from tidelog_node.event_loop import Pending
from tidelog_node.fetching import FetchRequest, FetchSpec, SessionStep
from tidelog_node.handlers import fetch as fetch_module
from tidelog_node.handlers.consumer_read import read_at_once
from tidelog_node.handlers.fetch import authorize, begin_fetch
from tidelog_node.handlers.fetch_sessions import FetchSessions
from tidelog_node.handlers.response_budget import ResponseBudget
from tidelog_node.replication.replica_selector import RACK_AWARE_SELECTOR, ReplicaSelector

TOPIC_ID = b"i" * 16
BATCHES, SIZE = 4, len(BATCH)
SIZES = st.sampled_from((0, 1, SIZE, 2 * SIZE, 1 << 20))
LEADER = 0
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY


def make_world(budget, is_rack_aware=False):
    """Return a node that leads partitions, the first of which has committed batches and one that is not committed."""
    world = World(has_sessions=False)
    world.pass_time(600)
    world.register(0, epoch=LEADER, isr=(1,))
    for _ in range(BATCHES):
        world.append(0)
    world.register(0, epoch=LEADER, isr=(1, 2))
    world.append(0)
    assert world.partitions[0].high_watermark == BATCHES
    names = SimpleNamespace(image=world.context.metadata.image, topic_name={TOPIC_ID: "t"}.get)
    world.context = dataclasses.replace(
        world.context,
        metadata=names,
        response_budget=ResponseBudget(budget),
        replica_selector=ReplicaSelector(RACK_AWARE_SELECTOR) if is_rack_aware else ReplicaSelector(),
    )
    return world


KEYS = st.sampled_from((("t", b""), ("t", TOPIC_ID), (TOPIC_ID, TOPIC_ID), (b"u" * 16, b"u" * 16), ("t", b"u" * 16)))


@st.composite
def requests(draw):
    spec = st.builds(
        FetchSpec,
        st.just(b""),
        st.integers(-1, BATCHES + 2),
        SIZES,
        st.sampled_from((None, LEADER, LEADER + 1)),
        st.sampled_from((None, None, LEADER, LEADER + 1)),
    )
    wanted = {}
    for index in draw(st.sampled_from(((0,), (0,), (0,), (1,), (9,), (0, 1)))):
        topic, topic_id = draw(KEYS)
        wanted[topic, index] = draw(spec)._replace(topic_id=topic_id)
    return FetchRequest(
        wanted,
        draw(SIZES),
        draw(st.sampled_from((0, 500))),
        draw(SIZES),
        is_read_committed=draw(st.booleans()),
        rack_id=draw(st.sampled_from(("", "rack"))),
        session=draw(st.sampled_from((None, SessionStep(0, -1), SessionStep(7, -1), SessionStep(0, 0)))),
        may_read_followers=draw(st.booleans()),
    )


def plain(response):
    results = [(topic, r) for topic, found in response.topics.items() for r in found]
    fields = [(topic, dataclasses.replace(r, error=r.error and r.error.code)) for topic, r in results]
    return fields, response.session_id, response.error and response.error.code


class Node:
    """A node whose consumers have one fetch each at a time. It reads in few steps if ``way`` does."""

    def __init__(self, world, way, authorizer=None):
        self.world = world
        self.way = way
        world.context = dataclasses.replace(
            world.context, fetch_sessions=FetchSessions(draw_id=itertools.count(5).__next__)
        )
        self.permissions = authorizer and Permissions(world.context.metadata, AUTHORIZERS[authorizer]())
        self.waiting = dict.fromkeys(USERS)
        self.outcomes = []

    def fetch(self, user, request):
        if self.waiting[user] is not None:
            self.waiting[user].cancel()
        asked = dataclasses.replace(request, owner=user)
        if self.permissions is not None:
            authorize(asked, self.permissions.access(user))
        begun = begin_fetch(self.world.context, asked, lambda response: response)
        if isinstance(begun, Pending):
            self.waiting[user] = begun
            begun.then(self.take)
        else:
            self.outcomes.append(plain(begun))

    def take(self, done):
        self.outcomes.append("cancelled" if done.is_cancelled else plain(done.result()))

    def permit(self, user, permission):
        if self.permissions is not None:
            self.permissions.set(user, permission)

    def commit(self):
        self.world.append(0)
        self.world.register(0, epoch=LEADER, isr=(1,))

    def found(self):
        traffic = self.world.partitions[0].traffic
        return self.outcomes, traffic.bytes_out, traffic.reads, self.permissions and self.permissions.counts()


async def run(node, history, monkeypatch):
    """Return the outcome of a history, with the lines of the audit log."""
    monkeypatch.setattr(fetch_module, "read_at_once", node.way)
    for name, *arguments in history:
        getattr(node, name)(*arguments)
        for _ in range(3):
            await asyncio.sleep(0)
    found = node.found()
    for waiting in node.waiting.values():
        if waiting is not None:
            waiting.cancel()
    return found


def general(context, request):
    return None


USUAL = FetchRequest({("t", 0): FetchSpec(b"", 0, 1 << 20)}, 1 << 20, 0, 1)
CALLERS = st.sampled_from(USERS)
STEPS = st.one_of(
    st.tuples(st.just("fetch"), CALLERS, requests()),
    st.tuples(st.just("fetch"), CALLERS, requests()),
    st.tuples(st.just("fetch"), CALLERS, st.just(USUAL)),
    st.tuples(st.just("fetch"), CALLERS, st.just(USUAL)),
    st.tuples(st.just("permit"), CALLERS, st.sampled_from((ALLOW, ALLOW, DENY, None))),
    st.tuples(st.just("commit")),
)


AT_END = FetchRequest({("t", 0): FetchSpec(b"", BATCHES + 1, 1 << 20)}, 1 << 20, 500, 1)
AN_EXAMPLE = {
    "permitted": USERS,
    "history": [
        *[("fetch", "alice", USUAL)] * 3,
        ("fetch", "alice", AT_END),
        ("permit", "alice", DENY),
        ("fetch", "bob", USUAL),
        ("commit",),
        *[("fetch", "alice", USUAL)] * 2,
        ("permit", "alice", ALLOW),
        *[("fetch", "alice", USUAL)] * 2,
    ],
    "budget": 1 << 30,
    "is_rack_aware": False,
    "audit_level": logging.INFO,
}


def test_reads_in_few_steps_have_the_responses_of_the_way_of_all_others(monkeypatch):
    found = collections.defaultdict(set)

    @settings(max_examples=examples(300), deadline=None)
    @given(
        permitted=st.sampled_from(((), USERS[:1], USERS, USERS)),
        history=st.lists(STEPS, min_size=1, max_size=8),
        budget=st.sampled_from((1 << 30, 1 << 30, 4 * SIZE, 0)),
        is_rack_aware=st.booleans(),
        authorizer=st.sampled_from((None, *AUTHORIZERS)),
        audit_level=st.sampled_from((logging.INFO, logging.INFO, logging.DEBUG)),
    )
    @example(authorizer=None, **AN_EXAMPLE)
    @example(authorizer="standard", **AN_EXAMPLE)
    @example(authorizer="own", **AN_EXAMPLE)
    def hold(permitted, history, budget, is_rack_aware, authorizer, audit_level):
        def reading(context, request):
            response = read_at_once(context, request)
            found[authorizer].add(response is not None)
            return response

        history = [("permit", user, ALLOW) for user in permitted] + history
        both = []
        for way in (reading, general):
            with audit_lines(audit_level) as lines:
                node = Node(make_world(budget, is_rack_aware), way, authorizer)
                both.append((asyncio.run(run(node, history, monkeypatch)), lines))
        assert both[0] == both[1]

    hold()
    assert found == {None: {True, False}, "standard": {True, False}, "own": {False}}


@pytest.mark.parametrize("session", [None, SessionStep(0, -1)])
def test_read_of_one_partition_with_records_takes_few_steps(session):
    context = make_world(1 << 30, is_rack_aware=False).context
    wanted = {(TOPIC_ID, 0): FetchSpec(TOPIC_ID, 1, 1 << 20)}
    response = read_at_once(context, FetchRequest(wanted, 1 << 20, 500, 1, session=session))
    [result] = response.topics[TOPIC_ID]
    assert len(result.records) == (BATCHES - 1) * SIZE
    wanted = {(TOPIC_ID, 0): FetchSpec(TOPIC_ID, BATCHES, 1 << 20)}
    assert read_at_once(context, FetchRequest(wanted, 1 << 20, 500, 1, session=session)) is None


def test_permission_takes_few_steps_once_it_is_known_and_until_the_acls_change(monkeypatch):
    calls = []

    def reading(context, request):
        response = read_at_once(context, request)
        calls.append(response is not None)
        return response

    fetch = ("fetch", "alice", USUAL)
    history = [fetch, ("permit", "alice", ALLOW), fetch, fetch, fetch, ("permit", "bob", ALLOW), fetch, fetch]
    history += [("permit", "alice", DENY), fetch, fetch, ("permit", "alice", ALLOW), fetch, fetch]
    with audit_lines(logging.INFO) as lines:
        node = Node(make_world(1 << 30), reading, "standard")
        asyncio.run(run(node, history, monkeypatch))
    assert calls == [False, False, True, True, False, True, False, False, False, True]
    codes = [result.error for fields, _, _ in node.outcomes for _, result in fields]
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert codes == [denied, None, None, None, None, None, denied, denied, None, None]
    assert [line.split()[0] for line in lines] == ["denied"] * 3
    assert node.permissions.counts() == {("read", "topic", "allowed"): 3, ("read", "topic", "denied"): 3}


def test_each_fetch_is_decided_while_permissions_are_logged(monkeypatch):
    fetch = ("fetch", "alice", USUAL)
    with audit_lines(logging.DEBUG) as lines:
        node = Node(make_world(1 << 30), read_at_once, "standard")
        asyncio.run(run(node, [("permit", "alice", ALLOW), fetch, fetch, fetch], monkeypatch))
    assert [line.split()[0] for line in lines] == ["allowed"] * 3
