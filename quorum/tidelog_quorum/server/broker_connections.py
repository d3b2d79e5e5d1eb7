"""The shell of the brokers' connections: it resolves names, connects to listeners, and submits what is found.

``controller.connections`` decides, see the rules there and docs/decisions/0007.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NoReturn
from urllib.parse import unquote

from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_quorum.controller import connections as core
from tidelog_quorum.controller.connections import Answer, IpAddress
from tidelog_quorum.controller.sessions import BrokerRefused
from tidelog_quorum.metadata.registrations import BrokerRegistration
from tidelog_quorum.server.quorum_controller import QuorumController

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S: Final = 1.0


class BrokerConnections:
    """Watches the calls that brokers keep open, in the task :meth:`run`."""

    def __init__(self, quorum: QuorumController, clock_ms: Callable[[], int]) -> None:
        self._quorum = quorum
        self._clock_ms = clock_ms
        self._core = core.BrokerConnections(quorum.controller)
        self._call_ids = itertools.count(1)
        self._commands: asyncio.Queue[core.Command] = asyncio.Queue()

    async def hold(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, origin: IpAddress | None) -> NoReturn:
        """Wait while this controller leads; to be cancelled when the broker's connection, from ``origin``, breaks.

        Raises:
            TidelogError: NOT_CONTROLLER.
        """
        call_id = next(self._call_ids)
        self._step(core.CallOpened(call_id, (broker_id, broker_epoch), origin))
        try:
            await self._quorum.lead()
        except asyncio.CancelledError:
            self._step(core.CallBroken(call_id))
            raise
        except TidelogError:
            self._step(core.CallEnded(call_id))
            raise

    def has_call(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool:
        """Return whether the given registration of a broker has a connection now."""
        return self._core.has_call(broker_id, broker_epoch)

    async def run(self) -> None:
        """Examine the brokers whose connection broke, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                command = await self._commands.get()
                tasks.create_task(self._execute(command), name="examine-broker")

    def _step(self, event: core.Event) -> None:
        for command in self._core.step(event, self._clock_ms()):
            self._commands.put_nowait(command)

    async def _execute(self, command: core.Command) -> None:
        match command:
            case core.FindListeners(broker, origin, registration):
                self._step(core.ListenersFound(broker, await _ports_at(origin, registration)))
            case core.Connect(broker, origin, ports):
                attempts = (_connect(str(origin), port) for port in ports)
                self._step(core.Connected(broker, await asyncio.gather(*attempts)))
            case core.Pause(broker, pause_ms):
                await asyncio.sleep(pause_ms / 1000)
                self._step(core.PauseEnded(broker))
            case core.Report(refused, origin, ports):
                is_settled = await self._report(refused, origin, ports)
                self._step(core.Reported((refused.broker_id, refused.broker_epoch), is_settled))

    async def _report(self, refused: BrokerRefused, origin: IpAddress, ports: Sequence[int]) -> bool:
        try:
            is_settled = await self._quorum.handle(refused)
        except TidelogError as error:
            logger.debug("broker %s is left to its session: %s", refused.broker_id, error)
            return True
        if is_settled:
            where = ", ".join(format_address(str(origin), port) for port in ports)
            logger.info("broker %s is gone: its connection broke, and nobody listens at %s", refused.broker_id, where)
        return is_settled


def address_of_peer(peer: str) -> IpAddress | None:
    """Return the address in gRPC's name of a peer, such as ``ipv4:10.0.0.1:5000`` or ``ipv6:%5B::1%5D:5000``."""
    kind, _, address = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return None
    return _parsed(address.rpartition(":")[0].strip("[]"))


def _parsed(text: str) -> IpAddress | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


async def _ports_at(origin: IpAddress, broker: BrokerRegistration) -> list[int]:
    """Return the ports of those of a broker's listeners that are at ``origin``."""
    endpoints = {Endpoint(x.host, x.port) for x in broker.listeners} | {broker.endpoint}
    found = await asyncio.gather(*(_addresses_of(e.host) for e in endpoints))
    return sorted({e.port for e, addresses in zip(endpoints, found, strict=True) if origin in addresses})


async def _addresses_of(host: str) -> frozenset[IpAddress]:
    with suppress(OSError, UnicodeError, TimeoutError):
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return frozenset(filter(None, (_parsed(str(address[0])) for *_, address in found)))
    return frozenset()


async def _connect(host: str, port: int) -> Answer:
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return Answer.REFUSED
    except ConnectionError:
        return Answer.ACCEPTED
    except (OSError, TimeoutError):
        return Answer.NONE
    writer.transport.abort()
    return Answer.ACCEPTED
