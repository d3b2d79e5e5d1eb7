"""Ports for test servers: nobody else's while they are leased, though nobody listens on them."""

import socket
import subprocess
import sys

import pytest

from tidelog.testing import ports
from tidelog.testing.ports import free_ports, lease_port, lease_ports, release_ports

_OTHER = "from tidelog.testing import ports; ports._LOWEST, ports._HIGHEST = {range}; print(*ports.free_ports(200))"


def test_leased_ports_are_nobody_elses_until_they_are_released(monkeypatch):
    [lowest] = free_ports(1)
    monkeypatch.setattr(ports, "_LOWEST", lowest)
    monkeypatch.setattr(ports, "_HIGHEST", lowest + 1)
    assert lease_ports(1) == [lowest]
    with pytest.raises(OSError, match="no free port from"):
        lease_ports(1)
    release_ports([lowest])
    assert free_ports(1) == [lowest]


def test_leased_ports_are_not_given_to_other_processes():
    leased = lease_ports(40)
    try:
        around = (min(leased), max(leased) + 1)
        script = _OTHER.format(range=around)
        output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
        assert not set(map(int, output.split())) & set(leased)
    finally:
        release_ports(leased)


def test_servers_can_listen_on_leased_ports():
    [port] = lease_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        release_ports([port])


def test_port_is_leased_once_and_not_while_somebody_listens_on_it():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not lease_port(port)
        # The server's end of this connection waits on the port after the server is gone.
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()
    assert lease_port(port)
    assert not lease_port(port)
    release_ports([port])
    assert lease_port(port)
    release_ports([port])
