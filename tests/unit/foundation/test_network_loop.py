from __future__ import annotations

import asyncio
import os
import socket
import threading
import time

import pytest

from tidelog.cluster import ClusterClient
from tidelog_foundation.errors import ErrorCode, KafkaException
from tidelog_foundation.transport import network_loop, run_sync


async def current_thread() -> threading.Thread:
    return threading.current_thread()


def test_network_loop_runs_on_one_daemon_thread_for_all() -> None:
    thread = run_sync(current_thread())
    assert thread.daemon
    assert thread is not threading.current_thread()
    assert run_sync(current_thread()) is thread
    assert network_loop() is network_loop()


def test_run_sync_cancels_what_takes_too_long() -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        run_sync(wait(), 0.05)
    assert cancelled.wait(5)


def test_run_sync_passes_errors_on_even_a_timeout_of_the_callee() -> None:
    async def fail() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        run_sync(fail(), 5)


def test_run_sync_on_the_network_thread_is_refused_instead_of_hanging() -> None:
    async def nested() -> None:
        run_sync(current_thread())

    with pytest.raises(KafkaException, match="_STATE"):
        run_sync(nested(), 5)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_network_loop_is_the_childs_own_after_a_fork() -> None:
    run_sync(current_thread())
    child = os.fork()
    if child == 0:
        os._exit(0 if run_sync(current_thread(), 5).is_alive() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def refused(addresses: str, timeout_ms: float) -> KafkaException:
    client = ClusterClient(addresses)
    with pytest.raises(KafkaException) as caught:
        run_sync(client.refresh(timeout_ms=timeout_ms), 20)
    run_sync(client.close())
    return caught.value


def test_cluster_client_names_every_address_when_none_answers() -> None:
    first, second = free_port(), free_port()
    error = refused(f"127.0.0.1:{first},127.0.0.1:{second}", 300)
    assert error.code is ErrorCode._ALL_BROKERS_DOWN
    assert f"127.0.0.1:{first}: Connection refused" in error.message
    assert f"127.0.0.1:{second}: Connection refused" in error.message


def test_cluster_client_says_when_a_name_does_not_resolve() -> None:
    assert refused("no-such-host.invalid:9094", 300).code is ErrorCode._RESOLVE


def test_cluster_client_times_out_on_an_address_that_accepts_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        error = refused(f"127.0.0.1:{silent.getsockname()[1]}", 500)
    assert error.code is ErrorCode._TIMED_OUT
    assert time.monotonic() - started < 5


def test_cluster_client_refuses_calls_after_close() -> None:
    client = ClusterClient("127.0.0.1:1")
    run_sync(client.close())
    with pytest.raises(KafkaException, match="_DESTROY"):
        run_sync(client.refresh(timeout_ms=100))
