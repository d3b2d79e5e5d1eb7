"""Addresses of processes and of their listeners."""

from __future__ import annotations

from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address at which clients and followers reach a process."""

    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return format_address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class ControllerEndpoint:
    """The address of one of a controller's listeners; without a name, of all listeners without one of their own."""

    host: str
    port: int
    name: str = ""

    def __str__(self) -> str:
        address = format_address(self.host, self.port)
        return f"{self.name}://{address}" if self.name else address


@dataclass(frozen=True, slots=True)
class ListenerEndpoint:
    """The address of one of a broker's listeners, and its security protocol, such as GRPC_SSL."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        return f"{self.name}://{format_address(self.host, self.port)}"
