"""Fetches of one partition: the way of few steps has the results and bytes of the way of all others."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch
from tidelog_node.fetching import CurrentLeader, FetchRequest, FetchResponse, FetchResult, FetchSpec, SessionStep
from tidelog_node.kafka.protocol.messages.fetch_request import decode_request, encode_request
from tidelog_node.kafka.protocol.messages.fetch_response import decode_response, encode_response
from tidelog_node.kafka.protocol.messages.fetch_single import (
    decode_request_of_one,
    decode_response_of_one,
    encode_request_of_one,
    encode_response_of_one,
)
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.replication import EpochEnd

VERSIONS = st.integers(13, 18)
NUMBERS = st.integers(-(2**31), 2**31 - 1)
NATURALS = st.integers(0, 2**31 - 1)
LONG_NUMBERS = st.integers(-(2**63), 2**63 - 1)
LONG_NATURALS = st.integers(0, 2**63 - 1)
IDS = st.binary(min_size=16, max_size=16)
SPECS = st.builds(FetchSpec, IDS, LONG_NUMBERS, NUMBERS, st.none() | NATURALS, st.none() | NATURALS, LONG_NUMBERS)
RARELY = st.sampled_from((False, False, False, True))


@st.composite
def requests(draw: st.DrawFn) -> FetchRequest:
    specs = draw(st.lists(SPECS, min_size=1, max_size=1) | st.lists(SPECS, max_size=3))
    return FetchRequest(
        {(spec.topic_id, draw(NUMBERS)): spec for spec in specs},
        draw(NUMBERS),
        draw(NUMBERS),
        draw(NUMBERS),
        draw(st.none() | st.tuples(st.builds(BrokerId, NATURALS), st.builds(BrokerEpoch, LONG_NUMBERS))),
        draw(st.booleans()),
        "rack" if draw(RARELY) else "",
        "cluster" if draw(RARELY) else "",
        draw(st.builds(SessionStep, NUMBERS, NUMBERS, RARELY)),
        draw(st.lists(st.tuples(IDS, NUMBERS), max_size=1)) if draw(RARELY) else [],
        True,
        True,
    )


@st.composite
def responses(draw: st.DrawFn) -> FetchResponse:
    def result() -> FetchResult:
        made = FetchResult(draw(NUMBERS), None, draw(LONG_NUMBERS), draw(LONG_NUMBERS), draw(LONG_NUMBERS))
        made.records = draw(st.sampled_from((0, 1, 126, 127, 128, 4_095, 4_096, 20_000)).map(bytes))
        made.aborted = draw(st.sampled_from((None, None, [], [(1, 2)])))
        made.preferred_replica = draw(st.none() | st.builds(BrokerId, NATURALS))
        if draw(RARELY):
            made.error = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            made.current_leader = draw(st.none() | st.just(CurrentLeader(BrokerId(1), LeaderEpoch(2))))
        if draw(RARELY):
            made.diverging = EpochEnd(LeaderEpoch(3), 4)
        return made

    counts = draw(st.just([1]) | st.lists(st.integers(1, 2), max_size=2))
    topics = {bytes([place]) * 16: [result() for _ in range(count)] for place, count in enumerate(counts)}
    error = error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND) if draw(RARELY) else None
    return FetchResponse(topics, draw(NUMBERS), error, draw(NUMBERS))


def request_bytes(request: FetchRequest, version: int) -> bytes:
    writer = Writer()
    encode_request(request, writer, version)
    return b"".join(writer.chunks())


def response_bytes(response: FetchResponse, version: int) -> bytes:
    writer = Writer()
    encode_response(response, writer, version)
    return b"".join(writer.chunks())


def plain(message: FetchRequest | FetchResponse) -> dict[str, object]:
    """Return all fields, with lists for sequences and codes for errors, which do not compare."""
    fields = {f.name: getattr(message, f.name) for f in dataclasses.fields(message)}
    if isinstance(message, FetchRequest):
        return {**fields, "forgotten": list(message.forgotten)}
    for results in message.topics.values():
        for result in results:
            result.error = result.error and result.error.code  # type: ignore[assignment]
            result.aborted = result.aborted if result.aborted is None else list(result.aborted)
    return {**fields, "error": message.error and message.error.code}


@given(request=requests(), version=VERSIONS, before=st.binary(max_size=5))
def test_request_is_read_as_by_the_general_decoder(request: FetchRequest, version: int, before: bytes) -> None:
    data = memoryview(before + request_bytes(request, version))
    found = decode_request_of_one(data, len(before), version)
    known = decode_request(Reader(data, len(before)), version)
    is_of_one = len(known.wanted) == 1 and not (known.forgotten or known.rack_id or known.cluster_id)
    is_of_one = is_of_one and not (known.session and known.session.ends_wait)
    assert (found is not None) == (is_of_one and (version >= 15 or known.replica is None))
    assert found is None or plain(found) == plain(known)


@given(request=requests(), version=VERSIONS)
def test_request_has_the_bytes_of_the_general_encoder(request: FetchRequest, version: int) -> None:
    encoded = encode_request_of_one(request, version)
    assert encoded is None or encoded == request_bytes(request, version)
    is_of_follower = version >= 15 and request.replica is not None and len(request.wanted) == 1
    is_rare = request.forgotten or request.rack_id or request.cluster_id
    is_rare = is_rare or (request.session is not None and request.session.ends_wait)
    assert (encoded is not None) == (is_of_follower and not is_rare)


@given(response=responses(), version=VERSIONS)
def test_response_has_the_bytes_of_the_general_encoder(response: FetchResponse, version: int) -> None:
    chunks = encode_response_of_one(response, version)
    results = [result for results in response.topics.values() for result in results]
    is_of_one = response.error is None and len(results) == 1
    is_rare = any(r.error or r.aborted or r.diverging or r.current_leader for r in results)
    assert (chunks is not None) == (is_of_one and not is_rare)
    assert chunks is None or b"".join(chunks) == response_bytes(response, version)


@given(response=responses(), version=VERSIONS, before=st.binary(max_size=5))
def test_response_is_read_as_by_the_general_decoder(response: FetchResponse, version: int, before: bytes) -> None:
    data = memoryview(before + response_bytes(response, version))
    found = decode_response_of_one(data, len(before), version)
    assert (found is None) == (encode_response_of_one(response, version) is None)
    if found is not None:
        assert plain(found) == plain(decode_response(Reader(data, len(before)), version))


@st.composite
def changed(draw: st.DrawFn, whole: bytes) -> bytes:
    data = bytearray(whole)
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)) | st.just(len(data)))]) + draw(st.binary(max_size=2))


ONE = FetchRequest(
    {(b"t" * 16, 0): FetchSpec(b"t" * 16, 5, 6, LeaderEpoch(7), LeaderEpoch(8), 9)},
    1,
    2,
    3,
    (BrokerId(1), BrokerEpoch(2)),
    session=SessionStep(4, 5),
)
ANSWER = FetchResponse({b"t" * 16: [FetchResult(0, None, 1, 2, 3, b"r" * 200)]}, 6)


@given(version=VERSIONS, data=st.data())
def test_changed_requests_are_read_alike_or_left_to_the_general_decoder(version: int, data: st.DataObject) -> None:
    request = ONE if data.draw(st.booleans()) else dataclasses.replace(ONE, replica=None)
    body = memoryview(data.draw(changed(request_bytes(request, version))))
    found = decode_request_of_one(body, 0, version)
    assert found is None or plain(found) == plain(decode_request(Reader(body), version))


@given(version=VERSIONS, data=st.data())
def test_changed_responses_are_read_alike_or_left_to_the_general_decoder(version: int, data: st.DataObject) -> None:
    body = memoryview(data.draw(changed(response_bytes(ANSWER, version))))
    found = decode_response_of_one(body, 0, version)
    if found is None:
        return
    try:
        known = decode_response(Reader(body), version)
    except MalformedMessageError as error:
        raise AssertionError("the general decoder refuses it") from error
    assert plain(found) == plain(known)
