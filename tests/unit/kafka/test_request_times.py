"""The times of requests by API and phase."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import perf_counter_ns
from typing import Any, NoReturn

import pytest
from support.metric_values import values
from toy_listener import open_listener, request, run, until

from tidelog_foundation.logs.slow_requests import SlowRequests
from tidelog_foundation.metrics import Snapshot
from tidelog_foundation.otel.request_traces import NamedRequest
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.server.request_times import REQUEST_TIME, ApiTimes, TimedExchange


class Timed(TimedExchange):
    """A request with a hostile name."""

    def __init__(self, times: ApiTimes) -> None:
        super().__init__(7, times, 0, overlaps=False, has_tags=False)

    def origin(self) -> str:
        return "10.0.0.1 at PLAINTEXT"

    def request_id(self) -> str:
        return "bad client\n/7"

    def throttle_ns(self) -> int:
        return 3_000_000


def times_of(listener: Any) -> dict[tuple[str, ...], Snapshot]:
    found = values(listener.families(), REQUEST_TIME)
    return {labels: value for labels, value in found.items() if isinstance(value, Snapshot)}


def test_wait_of_a_request_is_remote_and_no_other_phase_has_it() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await listener.connect()
            await client.send(request(ApiKey.METADATA, 1, b"echo") + request(ApiKey.FETCH, 2, b"wait"))
            await client.receive()
            await asyncio.sleep(0.05)
            await listener.answer(2)
            await client.receive()
            await until(lambda: ("FETCH", "total") in times_of(listener.listeners))
            times = times_of(listener.listeners)
            assert {api for api, _ in times} == {"METADATA", "FETCH"}
            assert {labels: sum(each.counts) for labels, each in times.items()} == {
                (api, phase): 8 if api == "FETCH" else 1 for api, phase in times
            }
            assert times["FETCH", "remote"].total >= 8 * 0.045
            assert times["METADATA", "remote"].total < 0.05
            for phase in ("queue", "local", "send"):
                assert times["FETCH", phase].total < times["FETCH", "remote"].total
            phases = sum(times["FETCH", phase].total for phase in ("queue", "local", "remote", "send"))
            assert abs(times["FETCH", "total"].total - phases) < 1e-6

    run(main)


def test_steps_of_a_coroutine_are_local_and_its_waits_are_not() -> None:
    times = ApiTimes()
    timer = Timed(times)
    timer.leave()
    for _ in range(3):
        timer.enter()
        timer.leave()
    timer.answered_ns = perf_counter_ns()
    timer.end(timer.answered_ns + 1_000_000_000)
    snapshots = times.snapshots()
    assert snapshots["send"].total == 1
    assert snapshots["local"].total < 0.1
    assert sum(snapshots["send"].counts) == 1


def test_one_of_several_frequent_requests_is_measured_and_counts_for_all() -> None:
    times = ApiTimes(stride=4)
    for _ in range(8):
        Timed(times).end(1_000)
    snapshots = times.snapshots()
    assert {sum(each.counts) for each in snapshots.values()} == {8}
    assert snapshots["total"].total == pytest.approx(8 * 1e-6)


@pytest.mark.parametrize("api", ["PRODUCE", "FETCH"])
def test_slow_request_has_a_line_with_its_phases_unless_the_client_asked_for_the_wait(
    api: str, caplog: pytest.LogCaptureFixture
) -> None:
    times = ApiTimes(stride=8, api=api, slow=SlowRequests(100))
    Timed(times)
    timed = Timed(times)
    timed.begun_ns = 5_000_000
    timed.answered_ns = timed.begun_ns + 120_000_000
    timed.local_ns = 20_000_000
    timed.end(timed.answered_ns + 1_000_000)
    expected = (
        "Slow request: PRODUCE bad_client_/7 from 10.0.0.1 at PLAINTEXT took 126.0 ms: "
        "queue 5.0, local 20.0, remote 100.0, send 1.0, throttle 3.0"
    )
    assert [record.getMessage() for record in caplog.records] == ([expected] if api == "PRODUCE" else [])


@pytest.mark.parametrize("threshold_ms", [0, -1])
def test_no_request_is_slow_without_a_threshold(threshold_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    times = ApiTimes(api="PRODUCE", slow=SlowRequests(threshold_ms))
    Timed(times).end(10**15)
    assert not caplog.records


class Recorded:
    """Traces that remember what they got."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, int, dict[str, int]]] = []

    def begin(self, api: str, metadata: object) -> NoReturn:
        raise AssertionError("Kafka's protocol has no traceparent")

    def record(
        self, protocol: str, api: str, request: NamedRequest, total_ns: int, phases_ns: Mapping[str, int]
    ) -> None:
        assert protocol == "kafka"
        self.requests.append((api, request.request_id(), total_ns, dict(phases_ns)))


def test_every_request_is_traced_even_if_it_is_not_counted() -> None:
    traces = Recorded()
    times = ApiTimes(stride=8, api="PRODUCE", traces=traces)
    for _ in range(2):
        timed = Timed(times)
        timed.begun_ns = 5_000_000
        timed.answered_ns = timed.begun_ns + 120_000_000
        timed.local_ns = 20_000_000
        timed.end(timed.answered_ns + 1_000_000)
    phases = {"queue": 5_000_000, "local": 20_000_000, "remote": 100_000_000, "send": 1_000_000}
    assert traces.requests == [("PRODUCE", "bad client\n/7", 126_000_000, phases)] * 2
