"""Seeded fuzz: mutated requests of every API are read or refused, and never anything else.

``python -m tests.fuzz.fuzz_kafka_listener`` sends such to a real node for as long as one likes.
"""

import random

import pytest
from kafka_requests import any_request, declarations, framed, mutated, pieces, read_request
from seeds import reproducible, seeds
from toy_listener import Client, open_listener, run
from toy_listener import request as toy_request

from tidelog_node.kafka.apis.registry import all_apis
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.headers import read_request_header
from tidelog_node.kafka.protocol.reader import MalformedMessageError

_PER_API = 60


def test_every_api_that_is_served_has_its_requests_here() -> None:
    declared = declarations()
    for key, api in all_apis().items():
        first, last = declared[key].VERSIONS
        assert first <= api.versions[0]
        assert last >= api.versions[1], key


@pytest.mark.parametrize("seed", seeds(2))
def test_mutated_request_is_read_or_malformed(seed: int) -> None:
    with reproducible(seed):
        rng = random.Random(seed)
        read = malformed = 0
        for key, kind in sorted(declarations().items()):
            versions = range(kind.VERSIONS[0], kind.VERSIONS[1] + 1)
            for _ in range(_PER_API):
                version = rng.choice(versions)
                frame = any_request(kind, version, rng)
                read_request(frame, kind)
                changed = mutated(frame, rng)
                # What the header says then is the header's.
                changed = frame[:8] + changed[8:] if len(changed) >= 10 else changed
                try:
                    read_request(changed, kind)
                    read += 1
                except MalformedMessageError:
                    malformed += 1
            assert read_request_header(frame).api_key == key
        assert min(read, malformed) > _PER_API, "the mutations are neither all harmless nor all fatal"


@pytest.mark.parametrize("seed", seeds(2))
def test_mutated_requests_harm_no_other_connection_and_leave_nothing_behind(seed: int) -> None:
    kinds = declarations()
    toys = (ApiKey.METADATA, ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.API_VERSIONS)

    async def main() -> None:
        rng = random.Random(seed)
        async with open_listener() as listener:
            other = await listener.connect()
            for n in range(40):
                hostile = await listener.connect()
                frames = [any_request(kinds[key], rng.randrange(13), rng) for key in rng.choices(toys, k=3)]
                sent = mutated(b"".join(map(framed, frames)), rng)
                await _send(hostile, sent, rng)
                hostile.close()
                await other.send(toy_request(ApiKey.METADATA, n))
                assert await other.receive() == (n, b"echo")

    with reproducible(seed):
        run(main)


async def _send(client: Client, sent: bytes, rng: random.Random) -> None:
    try:
        for piece in pieces(sent, rng):
            await client.send(piece)
    except ConnectionError:
        pass
