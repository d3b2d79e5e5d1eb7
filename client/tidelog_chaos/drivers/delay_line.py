"""Delays and drops the packets that leave a network namespace, in user space: not every machine has the kernel's netem.

Run as a script, the module is the process that does so: it creates a tunnel interface, routes the namespace's packets
through it, holds each for its delay and sends it on by the real interface. The interface and its routes exist as long
as the process, which ends with its standard input; so no delay outlives the run. Packets overtake each other, as with
netem's jitter.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

_TUN = Path("/dev/net/tun")
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_DEVICE, _TUNNEL = "eth0", "delay0"
_LARGEST_PACKET = 65_536
_ANSWER_S = 15.0


class DelayLine:
    """The process of one namespace, from its start to :meth:`end`."""

    def __init__(self, namespace: Path, host: str, ms: float, jitter_ms: float, loss: float) -> None:
        command = ["nsenter", f"--net={namespace}", "--", sys.executable, "-I", "-S", __file__]
        self._process = subprocess.Popen(
            [*command, host, str(ms / 1000), str(jitter_ms / 1000), str(loss)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,  # Ctrl-C goes to the runner, which ends this process
        )
        assert self._process.stdout is not None
        is_told = select.select([self._process.stdout], [], [], _ANSWER_S)[0]
        if not is_told or self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"no packet can be delayed: {self.end()}")

    def end(self) -> str:
        """Stop delaying packets; return the error output of the process."""
        try:
            return self._process.communicate(timeout=_ANSWER_S)[1].strip()
        except subprocess.TimeoutExpired:
            self._process.kill()
            return f"the process did not end in {_ANSWER_S:.0f} s"


def has_tun() -> bool:
    """Return whether this process can create tunnel interfaces."""
    return os.access(_TUN, os.R_OK | os.W_OK)


def main() -> None:
    """Delay packets that leave the namespace until standard input ends."""
    host, delay_s, jitter_s, loss = sys.argv[1], *map(float, sys.argv[2:])
    tunnel = os.open(_TUN, os.O_RDWR)
    fcntl.ioctl(tunnel, _TUNSETIFF, struct.pack("16sH22x", _TUNNEL.encode(), _IFF_TUN | _IFF_NO_PI))
    real = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    # A socket bound to the interface uses its route, and not the tunnel's.
    real.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _DEVICE.encode())
    _run("ip", "link", "set", _TUNNEL, "up")
    subnet = host.rpartition(".")[0]
    for half in (f"{subnet}.0/25", f"{subnet}.128/25"):
        _run("ip", "route", "add", half, "dev", _TUNNEL, "src", host)
    print("ready", flush=True)
    _pass_on(tunnel, real, delay_s, jitter_s, loss)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=_ANSWER_S)


def _pass_on(tunnel: int, real: socket.socket, delay_s: float, jitter_s: float, loss: float) -> None:
    waiting: list[tuple[float, int, bytes]] = []
    count = 0
    while True:
        timeout_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready = select.select([tunnel, sys.stdin], [], [], timeout_s)[0]
        if sys.stdin in ready:
            return
        now_s = time.monotonic()
        if tunnel in ready:
            packet = os.read(tunnel, _LARGEST_PACKET)
            if _is_ipv4(packet) and random.random() >= loss:
                count += 1
                due_s = now_s + max(0.0, random.uniform(delay_s - jitter_s, delay_s + jitter_s))
                heapq.heappush(waiting, (due_s, count, packet))
        while waiting and waiting[0][0] <= now_s:
            _send(real, heapq.heappop(waiting)[2])


def _is_ipv4(packet: bytes) -> bool:
    return len(packet) >= 20 and packet[0] >> 4 == 4


def _send(real: socket.socket, packet: bytes) -> None:
    try:
        real.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))
    except OSError:
        return  # a packet may be lost, as in a full queue


if __name__ == "__main__":
    main()
