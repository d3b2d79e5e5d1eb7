"""Frames out of any cut of the bytes, headers, and the order of requests and responses; all without I/O."""

import random
import struct

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.frames import FrameReceiver
from tidelog_node.kafka.protocol.headers import (
    RequestHeader,
    read_request_header,
    read_response_header,
    response_has_tags,
    response_head,
    write_request_header,
)
from tidelog_node.kafka.protocol.pipeline import Exchange, Pipeline
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.server.limits import ConnectionTimeouts, ListenerLimits


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(10, 300), max_size=12), st.integers(16, 64), st.integers(0, 2**32))
def test_frames_are_the_same_for_any_cut_and_whoever_else_uses_the_shared_bytes(
    sizes: list[int], scratch_size: int, seed: int
) -> None:
    rng = random.Random(seed)
    scratch = bytearray(scratch_size)
    receiver = FrameReceiver(scratch, 300)
    frames = [rng.randbytes(size) for size in sizes]
    sent = b"".join(struct.pack(">i", len(f)) + f for f in frames)
    taken: list[bytes] = []
    position = 0
    while position < len(sent):
        if rng.random() < 0.2:
            receiver.buffer()  # and nothing came
            scratch[:] = rng.randbytes(scratch_size)
        room = receiver.buffer()
        count = min(len(room), rng.randint(1, scratch_size), len(sent) - position)
        room[:count] = sent[position : position + count]
        receiver.received(count)
        position += count
        while (announced := receiver.announced()) is not None:
            expected = frames[len(taken)]
            assert announced == (len(expected), int.from_bytes(expected[:2], "big", signed=True))
            if not receiver.is_whole():
                break
            taken.append(bytes(receiver.take()))
        receiver.keep()
        scratch[:] = rng.randbytes(scratch_size)
    assert taken == frames
    assert not receiver.is_partial


def test_frames_that_may_not_begin_yet_stay_as_they_are() -> None:
    scratch = bytearray(64)
    receiver = FrameReceiver(scratch, 100)
    sent = b"".join(struct.pack(">i", 12) + bytes([n]) * 12 for n in range(3))
    receiver.buffer()[: len(sent)] = sent
    receiver.received(len(sent))
    for n in range(3):
        assert receiver.announced() == (12, n * 257)
        assert receiver.is_whole()
        receiver.keep()
        scratch[:] = b"\xff" * 64
        assert receiver.take() == bytes([n]) * 12


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 9, 101, 2**31 - 1])
def test_frame_of_a_size_that_cannot_be_is_refused_before_anything_is_made_for_it(size: int) -> None:
    receiver = FrameReceiver(bytearray(64), 100)
    receiver.buffer()[:4] = struct.pack(">i", size)
    receiver.received(4)
    with pytest.raises(MalformedMessageError, match=f"a frame has {size} bytes"):
        receiver.announced()


@pytest.mark.parametrize("is_flexible", [False, True])
def test_request_header_is_read_as_it_was_written(is_flexible: bool) -> None:
    writer = Writer()
    write_request_header(writer, ApiKey.FETCH, 12, -5, "clïent", is_flexible=is_flexible)
    frame = bytes(writer.buffer) + b"body"
    header = read_request_header(frame)
    assert header == RequestHeader(ApiKey.FETCH, 12, -5, "clïent".encode(), len(frame) - 4 - is_flexible)
    reader = Reader(memoryview(frame), header.end)
    if is_flexible:
        reader.skip_tagged_fields()
    assert bytes(reader.blob(4)) == b"body"


@pytest.mark.parametrize("frame", [b"", bytes(9), bytes(8) + b"\0\1", bytes(8) + b"\x80\0", bytes(8) + b"\x7f\xffab"])
def test_request_header_that_cannot_be_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        read_request_header(frame)


@pytest.mark.parametrize("has_tags", [False, True])
def test_response_header_is_read_as_it_was_written(has_tags: bool) -> None:
    head = response_head(3, 77, has_tags=has_tags)
    assert int.from_bytes(head[:4], "big") == len(head) - 4 + 3
    reader = Reader(memoryview(head), 4)
    assert (read_response_header(reader, has_tags=has_tags), reader.remaining) == (77, 0)


def test_response_header_of_api_versions_never_has_tagged_fields() -> None:
    assert not response_has_tags(ApiKey.API_VERSIONS, is_flexible=True)
    assert response_has_tags(ApiKey.FETCH, is_flexible=True)
    assert not response_has_tags(ApiKey.FETCH, is_flexible=False)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=20), st.integers(1, 5), st.integers(0, 2**32))
def test_pipeline_begins_and_answers_in_order(kinds: list[bool], limit: int, seed: int) -> None:
    rng = random.Random(seed)
    pipeline = Pipeline(limit)
    coming = [Exchange(n, overlaps=overlaps, has_tags=False) for n, overlaps in enumerate(kinds)]
    under_way: list[Exchange] = []
    left: list[int] = []
    while coming or under_way:
        pipeline.check_invariants()
        may = bool(coming) and pipeline.may_begin(overlaps=coming[0].overlaps)
        if may and (not under_way or rng.random() < 0.6):
            under_way.append(coming.pop(0))
            pipeline.begin(under_way[-1])
            continue
        if not under_way:
            assert len(pipeline) == limit, "it waits for nothing but for responses to leave"
            left += [e.correlation_id for e in pipeline.take_answered()]
            continue
        exchange = under_way.pop(rng.randrange(len(under_way)))
        pipeline.answer(exchange, [b"ab", b"c"] if rng.random() < 0.8 else None)
        assert exchange.size in (0, 3)
        if rng.random() < 0.5:
            left += [e.correlation_id for e in pipeline.take_answered()]
    left += [e.correlation_id for e in pipeline.take_answered()]
    assert left == list(range(len(kinds)))
    assert len(pipeline) == 0


def test_frame_times_out_when_it_stops_or_creeps_and_not_before_it_begins() -> None:
    timeouts = ConnectionTimeouts(ListenerLimits(frame_pause_s=30, frame_bytes_per_s=1_000, max_idle_s=600), 0)
    assert timeouts.check_frame(0, 0, 10_000) is None
    timeouts.has_received(100)
    timeouts.waits_for_frame(100)
    assert timeouts.check_frame(50_000, 100, 130) is None
    assert timeouts.check_frame(50_000, 100, 131) == "no byte arrived for 30 s in the middle of a frame of 50000 bytes"
    for now in range(110, 160, 10):
        timeouts.has_received(now)
        timeouts.waits_for_frame(now)
    assert timeouts.check_frame(50_000, 20_000, 150) is None
    assert timeouts.check_frame(50_000, 20_000, 151) == "only 20000 of a frame's 50000 bytes arrived in 51 s"
    timeouts.waits_for_no_frame()
    timeouts.waits_for_frame(500)
    assert timeouts.check_frame(50_000, 100, 530) is None


def test_large_frame_times_out_sooner_while_others_wait_for_its_memory() -> None:
    limits = ListenerLimits(wanted_frame_bytes=1_000, wanted_pause_s=2, wanted_bytes_per_s=100)
    timeouts = ConnectionTimeouts(limits, 0)
    timeouts.has_received(0)
    timeouts.waits_for_frame(0)
    assert timeouts.check_frame(1_000, 100, 3) is None
    assert timeouts.check_frame(999, 100, 3, is_wanted=True) is None
    assert timeouts.check_frame(1_000, 100, 3, is_wanted=True) is not None
    timeouts.has_received(3)
    assert timeouts.check_frame(1_000, 100, 3, is_wanted=True) is None
    assert timeouts.check_frame(1_000, 100, 3.1, is_wanted=True) == "only 100 of a frame's 1000 bytes arrived in 3 s"


def test_client_times_out_that_reads_nothing_or_is_idle() -> None:
    timeouts = ConnectionTimeouts(ListenerLimits(max_idle_s=600), 0)
    timeouts.has_stopped_taking(1_000)
    assert timeouts.check_reader(500, 1_001) is None
    assert timeouts.check_reader(400, 1_500) is None
    assert timeouts.check_reader(400, 2_100) is None
    assert timeouts.check_reader(400, 2_101) == "the client has read none of 400 unsent bytes for 600 s"
    timeouts.has_answered(3_000)
    assert timeouts.check_idle(3_600) is None
    assert timeouts.check_idle(3_601) == "the connection was idle for 600 s"
