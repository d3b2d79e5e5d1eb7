"""A script that runs a cluster in network namespaces and prints its connectivity under each fault as JSON."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tidelog_chaos.drivers import CLIENTS, Delay, Member
from tidelog_chaos.drivers.netns import NetnsDriver
from tidelog_chaos.isolation import isolate

FIRST, SECOND = Member("node", 1), Member("node", 2)
_HOSTS = {FIRST: "10.213.0.101", SECOND: "10.213.0.102", CLIENTS: "10.213.0.254"}
_LISTEN = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind(("", 9999)); s.settimeout(0.7); print("bound", flush=True)
    try:
        print(s.recv(10).decode(), flush=True)
    except TimeoutError:
        print("nothing", flush=True)
"""
_SEND = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    for _ in range(3):
        s.sendto(b"packet", (sys.argv[1], 9999))
"""


def main() -> None:
    isolate(network=True)
    seen: dict[str, Any] = {}
    with contextlib.closing(
        NetnsDriver(Path(sys.argv[1]), 1, 2, {}, ("partition", "delay", "disk-full"), 64)
    ) as driver:
        driver.start()
        seen["calm"] = passing()
        driver.cut(frozenset([(FIRST, SECOND)]))
        seen["one way"] = passing()
        driver.cut(frozenset([(CLIENTS, FIRST), (FIRST, CLIENTS)]))
        seen["clients"] = passing()
        driver.cut(frozenset())
        seen["healed"] = passing()
        driver.delay(FIRST, Delay(ms=100, jitter_ms=20))
        seen["delayed ms"] = connect_ms()
        driver.undelay(FIRST)
        seen["not delayed ms"] = connect_ms()
        driver.delay(FIRST, Delay(ms=0, jitter_ms=0, loss=1.0))
        seen["lost"] = passing()
        driver.undelay(FIRST)
        driver.fill_disk(SECOND)
        seen["full"] = can_write(driver, SECOND), can_write(driver, FIRST)
        driver.free_disk(SECOND)
        seen["freed"] = can_write(driver, SECOND)
    print(json.dumps(seen))


def passing() -> list[str]:
    ends = [(FIRST, SECOND), (SECOND, FIRST), (CLIENTS, FIRST), (FIRST, CLIENTS)]
    return [f"{a} to {b}" for a, b in ends if passes(a, b)]


def passes(source: Any, target: Any) -> bool:
    listener = subprocess.Popen([*inside(target), "-c", _LISTEN], stdout=subprocess.PIPE, text=True)
    assert listener.stdout is not None
    listener.stdout.readline()
    subprocess.run([*inside(source), "-c", _SEND, _HOSTS[target]], check=True)
    answer = listener.communicate()[0]
    return answer == "packet\n"


def inside(end: Any) -> list[str]:
    return [*([] if end == CLIENTS else ["nsenter", f"--net=/run/netns/n{end.id}"]), sys.executable, "-S"]


def connect_ms() -> float:
    times = []
    for _ in range(3):
        started_s = time.monotonic()
        with socket.create_connection((_HOSTS[FIRST], 9094), timeout=5):
            times.append((time.monotonic() - started_s) * 1000)
    return min(times)


def can_write(driver: NetnsDriver, member: Member) -> bool:
    path = driver._directory(member) / "data" / "probe"
    try:
        path.write_bytes(b"x" * 100_000)
    except OSError:
        return False
    finally:
        path.unlink(missing_ok=True)
    return True


if __name__ == "__main__":
    main()
