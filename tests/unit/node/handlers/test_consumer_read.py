"""Reads of consumers in few steps have the responses of the way of all others."""

import asyncio
import dataclasses
from types import SimpleNamespace

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.node.handlers.test_fetch_session_model import BATCH, World

from tidelog_node.event_loop import Pending
from tidelog_node.fetching import FetchRequest, FetchSpec, SessionStep
from tidelog_node.handlers import fetch as fetch_module
from tidelog_node.handlers.consumer_read import read_at_once
from tidelog_node.handlers.fetch import begin_fetch
from tidelog_node.handlers.response_budget import ResponseBudget
from tidelog_node.replication.replica_selector import RACK_AWARE_SELECTOR, ReplicaSelector

TOPIC_ID = b"i" * 16
BATCHES, SIZE = 4, len(BATCH)
SIZES = st.sampled_from((0, 1, SIZE, 2 * SIZE, 1 << 20))
LEADER = 0


def make_world(budget, is_rack_aware):
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
        may_read=draw(st.sampled_from((None, None, lambda _: True, lambda _: False))),
    )


def plain(begun):
    if isinstance(begun, Pending):
        begun.cancel()
        return "waits"
    results = [(topic, r) for topic, found in begun.topics.items() for r in found]
    fields = [(topic, dataclasses.replace(r, error=r.error and r.error.code)) for topic, r in results]
    return fields, bool(begun.session_id), begun.error and begun.error.code


def test_reads_in_few_steps_have_the_responses_of_the_way_of_all_others(monkeypatch):
    found = []

    def reading(context, request):
        response = read_at_once(context, request)
        found.append(response is not None)
        return response

    @settings(max_examples=examples(300), deadline=None)
    @given(request=requests(), budget=st.sampled_from((1 << 30, 1 << 30, 4 * SIZE, 0)), is_rack_aware=st.booleans())
    def hold(request, budget, is_rack_aware):
        async def run():
            outcomes = []
            for way in (reading, lambda *_: None):
                monkeypatch.setattr(fetch_module, "read_at_once", way)
                world = make_world(budget, is_rack_aware)
                outcome = plain(begin_fetch(world.context, request, lambda response: response))
                traffic = world.partitions[0].traffic
                outcomes.append((outcome, traffic.bytes_out, traffic.reads))
            assert outcomes[0] == outcomes[1]

        asyncio.run(run())

    hold()
    assert any(found), "no request was answered in few steps"
    assert not all(found)


@pytest.mark.parametrize("session", [None, SessionStep(0, -1)])
def test_read_of_one_partition_with_records_takes_few_steps(session):
    context = make_world(1 << 30, is_rack_aware=False).context
    wanted = {(TOPIC_ID, 0): FetchSpec(TOPIC_ID, 1, 1 << 20)}
    response = read_at_once(context, FetchRequest(wanted, 1 << 20, 500, 1, session=session))
    [result] = response.topics[TOPIC_ID]
    assert len(result.records) == (BATCHES - 1) * SIZE
    wanted = {(TOPIC_ID, 0): FetchSpec(TOPIC_ID, BATCHES, 1 << 20)}
    assert read_at_once(context, FetchRequest(wanted, 1 << 20, 500, 1, session=session)) is None
