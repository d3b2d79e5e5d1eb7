"""The addresses of the REST API: a port that is in use, and two addresses with applications of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time

import httpx2
import pytest
from starlette.responses import PlainTextResponse

from tidelog.testing.ports import free_ports
from tidelog_connect.rest.listening import Endpoint, RestServer
from tidelog_connect.rest.settings import Address
from tidelog_foundation.errors import ConfigError

DEADLINE_S = 20
HOST = "127.0.0.1"


def endpoint(port: int, text: str = "") -> Endpoint:
    return Endpoint(Address("http", HOST, port), PlainTextResponse(text), None)


def test_port_in_use_is_an_error_that_names_it_and_frees_the_others() -> None:
    [free] = free_ports(1)
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        server = RestServer([endpoint(free), endpoint(port)], (), contextlib.nullcontext)
        with pytest.raises(ConfigError, match=f"cannot listen on http://{HOST}:{port}"):
            server.run()
    socket.create_server((HOST, free)).close()


def test_sigterm_ends_the_server_and_not_the_process_so_that_the_worker_leaves_its_group() -> None:
    raised: list[int] = []
    former = signal.signal(signal.SIGTERM, lambda number, _: raised.append(number))
    server = RestServer([endpoint(free_ports(1)[0])], (), contextlib.nullcontext)

    def terminate() -> None:
        wait_for_start(server)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=terminate, name="terminate")
    thread.start()
    try:
        server.run()
        assert server.should_exit
        assert raised == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert raised == [signal.SIGTERM], "the former handler is not restored"
    finally:
        thread.join(DEADLINE_S)
        signal.signal(signal.SIGTERM, former)


def wait_for_start(server: RestServer) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not server.started:
        assert time.monotonic() < deadline, "the server has not started"
        time.sleep(0.02)


def test_each_address_serves_its_application() -> None:
    ports = free_ports(2)
    server = RestServer([endpoint(ports[0], "a"), endpoint(ports[1], "b")], (), contextlib.nullcontext)
    thread = threading.Thread(target=server.run, name="rest")
    thread.start()
    try:
        wait_for_start(server)
        with httpx2.Client(trust_env=False) as client:
            assert [client.get(f"http://{HOST}:{port}/").text for port in ports] == ["a", "b"]
    finally:
        server.should_exit = True
        thread.join(DEADLINE_S)
    assert not thread.is_alive()
