"""Sees at once that a broker's process is gone, long before its session ends (docs/decisions/0007).

A broker leaves a call open at the leading controller. When its connection breaks, the controller knocks at the broker's
listeners: those whose advertised address is the one that the connection came from, for at others somebody in between
may answer. That each is refused, several times in a row, means that no process listens there, and the broker is fenced
as at the end of its session. Any other outcome means nothing: who answers lives, and silence may be the network's.
"""

from __future__ import annotations

import asyncio
import enum
import ipaddress
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NoReturn, TypeAlias
from urllib.parse import unquote

from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_quorum.controller import BrokerRefused
from tidelog_quorum.metadata import BrokerRegistration, Endpoint
from tidelog_quorum.server.quorum_controller import QuorumController

logger = logging.getLogger(__name__)

_REFUSALS: Final = 3
"""So many in a row: a listener that is opened again meanwhile is heard."""
_KNOCKS: Final = 12
"""The most: of a process that ends a connection may be closed some time before the listeners are."""
_KNOCK_EVERY_S: Final = 0.03
_KNOCK_TIMEOUT_S: Final = 1.0
_ROUNDS: Final = 3
"""A last heartbeat may be handled after the connection was seen to break; it counts, so there is another look."""
_MAX_AT_ONCE: Final = 32

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Broker: TypeAlias = tuple[BrokerId, BrokerEpoch]


class _Answer(enum.Enum):
    """What comes of connecting to a port."""

    REFUSED = enum.auto()
    """Nobody listens."""
    HEARD = enum.auto()
    """Somebody listens, or did a moment ago: who waits to be accepted is reset when a listener closes."""
    NONE = enum.auto()
    """Neither: the network may be broken, too."""


class BrokerConnections:
    """Lives as long as the process, on its event loop; ``run`` is its task."""

    def __init__(self, quorum: QuorumController, clock_ms: Callable[[], int]) -> None:
        self._quorum = quorum
        self._clock_ms = clock_ms
        self._held: dict[_Broker, object] = {}
        self._examined: set[_Broker] = set()
        self._broken: asyncio.Queue[tuple[_Broker, IpAddress]] = asyncio.Queue()
        self._slots = asyncio.Semaphore(_MAX_AT_ONCE)

    async def hold(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, origin: IpAddress | None) -> NoReturn:
        """Wait while this controller leads; to be cancelled when the broker's connection, from ``origin``, breaks.

        Raises:
            TidelogError: NOT_CONTROLLER.
        """
        broker = broker_id, broker_epoch
        call = self._held[broker] = object()
        try:
            await self._quorum.lead()
        except asyncio.CancelledError:
            # An earlier call, over a connection that was replaced, says nothing.
            if self._held.get(broker) is call and origin is not None:
                self._suspect(broker, origin)
            raise
        finally:
            if self._held.get(broker) is call:
                del self._held[broker]

    def is_held(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool:
        """Return whether a broker has a connection now, of that registration."""
        return (broker_id, broker_epoch) in self._held

    async def run(self) -> None:
        """Look after the brokers whose connection broke, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                broker, origin = await self._broken.get()
                tasks.create_task(self._examine(broker, origin), name=f"examine-broker-{broker[0]}")

    def _suspect(self, broker: _Broker, origin: IpAddress) -> None:
        if broker not in self._examined:
            self._examined.add(broker)
            self._broken.put_nowait((broker, origin))

    async def _examine(self, broker: _Broker, origin: IpAddress) -> None:
        try:
            async with self._slots:
                for _ in range(_ROUNDS):
                    if await self._is_settled(broker, origin):
                        return
        except TidelogError as error:
            logger.debug("broker %s is left to its session: %s", broker[0], error)
        finally:
            self._examined.discard(broker)

    async def _is_settled(self, broker: _Broker, origin: IpAddress) -> bool:
        """Look once, and return whether another look is of no use."""
        since_ms = self._clock_ms()
        registration = self._quorum.image.brokers.get(broker[0])
        if registration is None or registration.broker_epoch != broker[1] or registration.fenced:
            return True
        doors = await _doors_at(origin, registration)
        if not doors or not await _are_refused(origin, doors) or self.is_held(*broker):
            return True
        refused = BrokerRefused(*broker, since_ms)
        is_settled = await self._quorum.submit(lambda c, now_ms: c.handle_broker_refused(refused, now_ms))
        if is_settled:
            where = ", ".join(format_address(str(origin), port) for port in doors)
            logger.info("broker %s is gone: its connection broke, and nobody listens at %s", broker[0], where)
        return is_settled


def address_of_peer(peer: str) -> IpAddress | None:
    """Return the address in what gRPC says of a peer, ``ipv4:10.0.0.1:5000`` or ``ipv6:%5B::1%5D:5000``."""
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


async def _doors_at(origin: IpAddress, broker: BrokerRegistration) -> list[int]:
    """Return the ports of those of a broker's listeners that are at ``origin``."""
    endpoints = {Endpoint(x.host, x.port) for x in broker.listeners} | {broker.endpoint}
    found = await asyncio.gather(*(_addresses_of(e.host) for e in endpoints))
    return sorted({e.port for e, addresses in zip(endpoints, found, strict=True) if origin in addresses})


async def _addresses_of(host: str) -> frozenset[IpAddress]:
    with suppress(OSError, UnicodeError, TimeoutError):
        async with asyncio.timeout(_KNOCK_TIMEOUT_S):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return frozenset(filter(None, (_parsed(str(address[0])) for *_, address in found)))
    return frozenset()


async def _are_refused(origin: IpAddress, ports: Sequence[int]) -> bool:
    """Return whether in the end every port refuses to be connected to, several times in a row."""
    refusals = 0
    for _ in range(_KNOCKS):
        answers = await asyncio.gather(*(_knock(str(origin), port) for port in ports))
        if _Answer.NONE in answers:
            return False
        refusals = 0 if _Answer.HEARD in answers else refusals + 1
        if refusals == _REFUSALS:
            return True
        await asyncio.sleep(_KNOCK_EVERY_S)
    return False


async def _knock(host: str, port: int) -> _Answer:
    try:
        async with asyncio.timeout(_KNOCK_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return _Answer.REFUSED
    except ConnectionError:
        return _Answer.HEARD
    except (OSError, TimeoutError):
        return _Answer.NONE
    writer.transport.abort()
    return _Answer.HEARD
