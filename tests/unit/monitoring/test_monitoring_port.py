"""The paths of a monitoring port, its limits, and its TLS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from support.scrapes import Scrape, ask

from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import ConfigError, ErrorCode, error_for
from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_foundation.monitoring.checks import Check
from tidelog_foundation.monitoring.monitor import Monitor
from tidelog_foundation.monitoring.settings import MonitoringSettings
from tidelog_foundation.monitoring.stop_safety import DescribeStop
from tidelog_foundation.requests.stop_safety import DescribeStopSafetyResponse, StopObstacle, StopObstacleCount
from tidelog_foundation.security.certificate_store import CertificateStore
from tidelog_foundation.security.ssl_settings import SslSettings

TOPICS = Metric("tidelog_toys_total", Kind.COUNTER, 'Toys \\ with "quotes".', labels=("name",))
SIZES = Metric("tidelog_toy_size_bytes", Kind.HISTOGRAM, "Sizes.", unit="bytes", buckets=(1, 10))


async def no_obstacles() -> DescribeStopSafetyResponse:
    return DescribeStopSafetyResponse()


@contextlib.asynccontextmanager
async def opened(
    checks: Callable[[], Sequence[Check]] = lambda: (),
    describe_stop: DescribeStop = no_obstacles,
    sources: Iterable[Callable[[], Iterable[Family]]] = (),
    certificates: CertificateStore | None = None,
    **settings: str,
) -> AsyncIterator[str]:
    """Yield the URL of a port."""
    scheme = "HTTP" if certificates is None else "HTTPS"
    given = {"metrics_listeners": f"{scheme}://127.0.0.1:0"} | settings
    config = parse_config(MonitoringSettings, {key.replace("_", "."): value for key, value in given.items()})
    monitor = Monitor(config, {} if certificates is None else {"HTTPS": certificates}, checks, describe_stop)
    monitor.add(*sources)
    await monitor.start()
    try:
        yield f"{scheme.lower()}://127.0.0.1:{monitor.ports[scheme]}"
    finally:
        await monitor.stop()


async def get(url: str, **options: Any) -> tuple[int, str, str]:
    return await asyncio.to_thread(ask, url, **options)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


def toys() -> Iterable[Family]:
    yield TOPICS.of({('a"b\\c\nd',): 3})
    sizes = SIZES.histogram(per_unit=1)
    for size in (0, 1, 5, 20):
        sizes.observe(size)
    yield SIZES.of(sizes.snapshot())


def test_metrics_have_the_format_that_the_scraper_accepts() -> None:
    async def main() -> None:
        async with opened(sources=[toys, lambda: [TOPICS.of({("other",): 4})]]) as url:
            _, content_type, text = await get(f"{url}/metrics")
            assert content_type.startswith("text/plain; version=0.0.4")
            seen = Scrape(text)
            assert seen.value("tidelog_toys_total", name='a"b\\c\nd') == 3
            assert seen.value("tidelog_toys_total") == 7, "families of one metric are merged"
            buckets = [seen.value("tidelog_toy_size_bytes_bucket", le=le) for le in ("1.0", "10.0", "+Inf")]
            assert buckets == [2, 3, 4]
            assert seen.value("tidelog_toy_size_bytes_sum") == 26
            assert seen.value("process_resident_memory_bytes") > 0
            assert seen.value("tidelog_event_loop_cpu_seconds_total") > 0
            accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1"
            _, content_type, text = await get(f"{url}/metrics", Accept=accept)
            assert content_type.startswith("application/openmetrics-text; version=1.0.0")
            families = {family.name: family for family in parse_openmetrics(text)}
            assert families["tidelog_toy_size_bytes"].unit == "bytes"

    run(main)


def test_health_tells_what_is_wrong_and_readiness_follows_it() -> None:
    checks = [Check("log", True), Check("fencing", False, "the node is fenced")]

    async def main() -> None:
        async with opened(lambda: checks) as url:
            assert (await get(f"{url}/livez"))[::2] == (200, "ok\n")
            assert (await get(f"{url}/readyz"))[::2] == (503, "fencing: the node is fenced\n")
            status, kind, text = await get(f"{url}/healthz")
            assert (status, kind) == (503, "application/json")
            assert json.loads(text)["checks"][1] == {"name": "fencing", "ok": False, "detail": "the node is fenced"}
            checks.pop()
            assert (await get(f"{url}/readyz"))[::2] == (200, "ok\n")
            assert json.loads((await get(f"{url}/healthz"))[2])["ready"] is True

    run(main)


def test_process_is_not_live_while_its_event_loop_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog_foundation.monitoring.application._ANSWER_TIMEOUT_S", 0.05)

    async def main() -> None:
        async with opened() as url:
            answers: list[tuple[int, str, str]] = []
            thread = threading.Thread(target=lambda: answers.append(ask(f"{url}/livez")))
            thread.start()
            while thread.is_alive():
                time.sleep(0.01)  # noqa: ASYNC251  # it blocks the loop
            assert answers[0][::2] == (503, "the event loop has not answered in 0.05 s\n")
            assert (await get(f"{url}/livez"))[0] == 200

    run(main)


def obstacles(kind: str) -> DescribeStopSafetyResponse:
    return DescribeStopSafetyResponse((StopObstacle(kind, "orders", 3, (1, 2), 2),), (StopObstacleCount(kind, 1),))


def test_stop_is_safe_when_nothing_stands_against_it() -> None:
    async def main() -> None:
        async with opened() as url:
            status, kind, text = await get(f"{url}/safe-to-stop?wait=60")
            assert (status, kind) == (200, "application/json")
            assert json.loads(text) == {"safe_to_stop": True, "obstacles": [], "counts": []}
            assert (await get(f"{url}/safe-to-stop?wait=soon"))[0] == 400
            assert (await get(f"{url}/safe-to-stop?unreplicated=no"))[0] == 400

    run(main)


def test_stop_waits_until_it_is_safe() -> None:
    answers = [
        obstacles("below_min_insync_replicas"),
        obstacles("below_min_insync_replicas"),
        obstacles("not_redundant"),
    ]

    async def describe() -> DescribeStopSafetyResponse:
        return answers[0] if len(answers) == 1 else answers.pop(0)

    async def main() -> None:
        async with opened(describe_stop=describe) as url:
            status, _, text = await get(f"{url}/safe-to-stop")
            assert (status, json.loads(text)["obstacles"][0]["topic"]) == (503, "orders")
            assert (await get(f"{url}/safe-to-stop?wait=20&unreplicated=ignore"))[0] == 200
            # No wait helps what has no replica to spare.
            assert (await get(f"{url}/safe-to-stop?wait=600"))[0] == 503

    run(main)


def test_stop_is_not_safe_while_no_controller_answers() -> None:
    async def describe() -> DescribeStopSafetyResponse:
        raise error_for(ErrorCode.REQUEST_TIMED_OUT, "no controller answered")

    async def main() -> None:
        async with opened(describe_stop=describe) as url:
            status, _, text = await get(f"{url}/safe-to-stop?wait=0")
            assert status == 503
            assert "no controller answered" in text

    run(main)


def test_debug_paths_are_off_unless_enabled() -> None:
    async def main() -> None:
        async with opened() as url:
            for path in ("tasks", "profile?seconds=1"):
                assert (await get(f"{url}/debug/{path}"))[0] == 404
        async with opened(metrics_debug_enable="true") as url:
            status, _, text = await get(f"{url}/debug/tasks")
            assert status == 200
            assert "# Task event-loop-probe" in text
            assert "event_loop.py" in text
            assert (await get(f"{url}/debug/profile?seconds=1"))[2].rpartition(" ")[2].strip().isdigit()
            for seconds in ("0", "61", "x", "", "9" * 5_000):
                assert (await get(f"{url}/debug/profile?seconds={seconds or 'y'}"))[0] == 400

    run(main)


def test_requests_beyond_the_limits_are_refused_and_others_are_served() -> None:
    async def main() -> None:
        async with opened() as url:
            assert (await get(f"{url}/metrics", method="POST"))[0] in (405, 413)
            assert (await get(f"{url}/nowhere"))[0] == 404
            assert (await get(f"{url}/livez", header="x" * 20_000))[0] == 413
            host, _, port = url.removeprefix("http://").rpartition(":")
            silent = [socket.create_connection((host, int(port))) for _ in range(3)]
            assert (await get(f"{url}/livez"))[0] == 200
            for each in silent:
                each.close()

    run(main)


def test_scrapes_at_the_same_time_read_the_metrics_once() -> None:
    async def main() -> None:
        reads = []

        def source() -> Iterable[Family]:
            reads.append(1)
            yield TOPICS.of({("a",): 1})

        async with opened(sources=[source]) as url:
            answers = await asyncio.gather(*(get(f"{url}/metrics") for _ in range(8)))
            assert {status for status, _, _ in answers} <= {200, 503}
            assert sum(status == 200 for status, _, _ in answers) >= 1
            assert len(reads) == 1

    run(main)


def test_scrapes_in_many_formats_read_the_metrics_once() -> None:
    async def main() -> None:
        reads = []

        def source() -> Iterable[Family]:
            reads.append(1)
            yield TOPICS.of({("a",): 1})

        async with opened(sources=[source]) as url:
            for number in range(4):
                accept = f"application/openmetrics-text;version=1.0.{number},text/{number}"
                assert (await get(f"{url}/metrics", Accept=accept))[0] == 200
            assert len(reads) == 1

    run(main)


@pytest.mark.parametrize("version", ["abc", "1.x.0", "-1", ""])
def test_scrape_with_a_malformed_version_is_answered(version: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with opened(sources=[toys]) as url:
            for kind in ("application/openmetrics-text", "text/plain"):
                status, _, text = await get(f"{url}/metrics", Accept=f"{kind};version={version}")
                assert status == 200, text

    run(main)
    assert not caplog.records


def test_source_that_fails_is_reported_and_does_not_end_the_port(caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> Iterable[Family]:
        raise RuntimeError("a defect")

    async def main() -> None:
        async with opened(sources=[failing]) as url:
            assert (await get(f"{url}/metrics"))[0] == 500
            assert (await get(f"{url}/livez"))[0] == 200

    run(main)
    assert "A request for /metrics failed" in caplog.text


def test_port_with_tls_requires_a_client_certificate_and_waits_for_no_silent_client(tmp_path: Path) -> None:
    authority = Authority()
    settings = parse_config(
        SslSettings,
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.issue("node", ["127.0.0.1"]).write_pem(tmp_path / "server.pem")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.write_pem(tmp_path / "ca.pem")),
            "ssl.client.auth": "required",
        },
    )
    stranger, known = (ssl.create_default_context(cadata=authority.pem) for _ in range(2))
    known.load_cert_chain(authority.issue("prometheus").write_pem(tmp_path / "client.pem"))

    async def main() -> None:
        async with opened(certificates=CertificateStore("HTTPS", settings)) as url:
            host, _, port = url.removeprefix("https://").rpartition(":")
            silent = socket.create_connection((host, int(port)))
            assert (await get(f"{url}/livez", context=known))[0] == 200
            with pytest.raises((ssl.SSLError, OSError)):
                await get(f"{url}/livez", context=stranger)
            silent.close()

    run(main)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("GRPC://127.0.0.1:9404", "HTTP:// or HTTPS://"),
        ("127.0.0.1:9404", "invalid listener"),
        ("HTTP://127.0.0.1:9404,HTTP://127.0.0.1:9405", "different name"),
    ],
)
def test_listener_is_malformed_and_refused(value: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_config(MonitoringSettings, {"metrics.listeners": value})


def test_port_in_use_is_told_by_its_setting() -> None:
    async def main() -> None:
        async with opened() as url:
            with pytest.raises(ConfigError, match=r"metrics.listeners: cannot listen on .*: Address already"):
                async with opened(metrics_listeners=url.replace("http", "HTTP")):
                    pass

    run(main)
