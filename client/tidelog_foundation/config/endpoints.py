"""The parsers of addresses: listeners and the quorum's voters. They resolve no names and open nothing."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError

GRPC = "GRPC"
"""The security protocol of gRPC listeners, and their default name."""
GRPC_SSL = "GRPC_SSL"
"""The security protocol of gRPC listeners with TLS; also a listener name."""
GRPC_SASL_PLAINTEXT = "GRPC_SASL_PLAINTEXT"
"""The security protocol of gRPC listeners with SASL and without TLS; also a listener name."""
GRPC_SASL_SSL = "GRPC_SASL_SSL"
"""The security protocol of gRPC listeners with SASL over TLS; also a listener name."""
PLAINTEXT = "PLAINTEXT"
"""The security protocol of unencrypted Kafka listeners; also a listener name."""
SSL = "SSL"
"""The security protocol of Kafka listeners with TLS; also a listener name."""
SASL_PLAINTEXT = "SASL_PLAINTEXT"
"""The security protocol of unencrypted Kafka listeners with SASL; also a listener name."""
SASL_SSL = "SASL_SSL"
"""The security protocol of Kafka listeners with TLS and SASL; also a listener name."""
HTTP = "HTTP"
"""The name and protocol of a monitoring port."""
HTTPS = "HTTPS"
"""The name and protocol of a monitoring port with TLS."""
DEFAULT_PROTOCOL_MAP = (
    "GRPC:GRPC,GRPC_SSL:GRPC_SSL,GRPC_SASL_PLAINTEXT:GRPC_SASL_PLAINTEXT,GRPC_SASL_SSL:GRPC_SASL_SSL,"
    "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
)
GRPC_PROTOCOLS = (GRPC, GRPC_SSL, GRPC_SASL_PLAINTEXT, GRPC_SASL_SSL)
"""The security protocols of gRPC listeners."""
_TLS_PROTOCOLS = (GRPC_SSL, GRPC_SASL_SSL, SSL, SASL_SSL, HTTPS)
_SASL_PROTOCOLS = (GRPC_SASL_PLAINTEXT, GRPC_SASL_SSL, SASL_PLAINTEXT, SASL_SSL)
PROTOCOLS = (*GRPC_PROTOCOLS, PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
"""All security protocols."""
GRPC_OF = {PLAINTEXT: GRPC, SSL: GRPC_SSL, SASL_PLAINTEXT: GRPC_SASL_PLAINTEXT, SASL_SSL: GRPC_SASL_SSL}
"""The protocol of gRPC listeners that are as secure as Kafka listeners with each protocol."""
MAX_CONTROLLER_LISTENERS = 8
"""The most listeners of a controller, each of which every message to another controller's may name."""
ANY_HOST = ""
"""The host of ``NAME://:port``. It means all addresses of this machine for listening, its canonical name for others."""
_EVERY_ADDRESS = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class NamedListener:
    """A node's listener: its name in capitals, and the address that it binds or advertises."""

    name: str
    host: str
    port: int
    security_protocol: str = PLAINTEXT

    def __str__(self) -> str:
        return f"{self.name}://{format_address(self.host, self.port)}"

    @property
    def speaks_grpc(self) -> bool:
        """True if the listener speaks gRPC, False if it speaks Kafka's protocol."""
        return speaks_grpc(self.security_protocol)

    @property
    def has_tls(self) -> bool:
        """True if connections to the listener are encrypted."""
        return has_tls(self.security_protocol)

    @property
    def has_sasl(self) -> bool:
        """True if clients of the listener authenticate with SASL."""
        return has_sasl(self.security_protocol)


@dataclass(frozen=True, slots=True)
class BrokerListeners:
    """The listeners of a node. ``advertised`` are some of ``bound`` by name; ``inter_broker`` is one of ``advertised``.

    Port 0 lets the system choose; an advertised port is 0 only if the listener's is. An advertised host may be
    :data:`ANY_HOST`.
    """

    bound: tuple[NamedListener, ...]
    advertised: tuple[NamedListener, ...]
    inter_broker: NamedListener

    @property
    def grpc(self) -> tuple[NamedListener, ...]:
        """The gRPC listeners, at least one."""
        return tuple(x for x in self.bound if x.speaks_grpc)

    @property
    def kafka(self) -> tuple[NamedListener, ...]:
        """The listeners for Kafka's protocol."""
        return tuple(x for x in self.bound if not x.speaks_grpc)


@dataclass(frozen=True, slots=True)
class ControllerListeners:
    """The listeners of a controller, in the order of ``controller.listener.names``.

    ``advertised`` has the same names as ``bound``.
    """

    bound: tuple[NamedListener, ...]
    advertised: tuple[NamedListener, ...]

    @property
    def first(self) -> NamedListener:
        """The listener by whose name this controller calls the others."""
        return self.bound[0]


def speaks_grpc(security_protocol: str) -> bool:
    """Return whether listeners with this security protocol speak gRPC."""
    return security_protocol in GRPC_PROTOCOLS


def has_tls(security_protocol: str) -> bool:
    """Return whether connections to listeners with this security protocol are encrypted."""
    return security_protocol in _TLS_PROTOCOLS


def has_sasl(security_protocol: str) -> bool:
    """Return whether clients of listeners with this security protocol authenticate with SASL."""
    return security_protocol in _SASL_PROTOCOLS


def parse_broker_listeners(
    listeners: str, protocol_map: str, advertised: str | None = None, inter_broker: str | None = None
) -> BrokerListeners:
    """Return the node's listeners from ``listeners`` and the settings that refine it.

    These are ``listener.security.protocol.map``, ``advertised.listeners`` and ``inter.broker.listener.name`` (KIP-103;
    Kafka's KafkaConfig.validateValues).

    Raises:
        ConfigError: a setting is malformed, or the settings are inconsistent.
    """
    protocols = parse_protocol_map(protocol_map)
    bound = _with_protocols(parse_listeners(listeners), protocols)
    _check_grpc("listeners", bound)
    if advertised is None:
        shown = bound
    else:
        shown = _with_protocols(parse_advertised_listeners(advertised), protocols)
        _check_known("advertised.listeners", shown, bound)
        _check_grpc("advertised.listeners", shown)
    _check_reachable(shown)
    everywhere = tuple(dataclasses.replace(x, host=x.host or _EVERY_ADDRESS[0]) for x in bound)
    return BrokerListeners(everywhere, shown, _inter_broker(inter_broker, shown))


def parse_bootstrap_listeners(text: str | None, bound: Sequence[NamedListener]) -> tuple[NamedListener, ...]:
    """Return the addresses in ``bootstrap.listeners``, with the protocols of the ``bound`` listeners of their names.

    Raises:
        ConfigError: an address is malformed, has port 0 or the port of a listener, or names none of the listeners.
    """
    if text is None:
        return ()
    found = parse_listeners(text)
    _check_known("bootstrap.listeners", found, bound)
    protocols, ports = {x.name: x.security_protocol for x in bound}, {x.port: x for x in bound}
    for listener in found:
        if listener.port == 0:
            raise ConfigError(f"bootstrap.listeners {listener} has port 0")
        if listener.port in ports:
            raise ConfigError(f"bootstrap.listeners {listener} has the port of the listener {ports[listener.port]}")
    return tuple(NamedListener(x.name, x.host or _EVERY_ADDRESS[0], x.port, protocols[x.name]) for x in found)


def parse_controller_listener(names: str, protocol_map: str) -> NamedListener:
    """Return the first listener of ``controller.listener.names``, without an address.

    Raises:
        ConfigError: no name is given; one has no protocol, or one that controllers do not speak.
    """
    listeners = tuple(NamedListener(name, ANY_HOST, 0) for name in parse_listener_names(names))
    found = _with_protocols(listeners, parse_protocol_map(protocol_map))
    _check_of_controllers("controller.listener.names", found)
    return found[0]


def parse_listener_names(text: str) -> tuple[str, ...]:
    """Return the names in ``NAME,NAME`` in capitals, each once.

    Raises:
        ConfigError: there is none.
    """
    names = tuple(dict.fromkeys(name.strip().upper() for name in text.split(",") if name.strip()))
    if not names:
        raise ConfigError(f'no listener is named in "{text}": must be NAME,NAME,...')
    return names


def parse_controller_listeners(
    listeners: str,
    protocol_map: str,
    names: str | None = None,
    advertised: str | None = None,
    voter: tuple[str, int] | None = None,
) -> ControllerListeners:
    """Return a controller's listeners from ``listeners`` and the settings that refine it.

    These are ``listener.security.protocol.map``, ``controller.listener.names`` (by default the names in the order of
    ``listeners``), ``advertised.listeners``, and the controller's own address in ``controller.quorum.voters``, which is
    that of the first listener.

    Raises:
        ConfigError: a setting is malformed, or the settings are inconsistent.
    """
    bound = _with_protocols(parse_listeners(listeners), parse_protocol_map(protocol_map))
    _check_of_controllers("listeners", bound)
    if len(bound) > MAX_CONTROLLER_LISTENERS:
        raise ConfigError(f"listeners {listeners} has {len(bound)} listeners, at most {MAX_CONTROLLER_LISTENERS}")
    by_name = {x.name: x for x in bound}
    if names is not None:
        order = parse_listener_names(names)
        if set(order) != set(by_name):
            raise ConfigError(
                f"controller.listener.names {names} must name all listeners of a controller, which are "
                f"{', '.join(by_name)} in listeners"
            )
        bound = tuple(by_name[name] for name in order)
    shown = parse_advertised_listeners(advertised) if advertised is not None else ()
    _check_known("advertised.listeners", shown, bound)
    if voter is not None:
        _check_voter(voter, bound, [x.name for x in shown])
        shown = (*shown, dataclasses.replace(bound[0], host=voter[0], port=voter[1]))
    addresses = {x.name: (x.host, x.port) for x in (*bound, *shown)}
    reached = tuple(dataclasses.replace(x, host=addresses[x.name][0], port=addresses[x.name][1]) for x in bound)
    everywhere = tuple(dataclasses.replace(x, host=x.host or _EVERY_ADDRESS[0]) for x in bound)
    return ControllerListeners(everywhere, reached)


def _check_of_controllers(key: str, listeners: tuple[NamedListener, ...]) -> None:
    for listener in listeners:
        if not listener.speaks_grpc:
            raise ConfigError(
                f"{key}: {listener.name} has the security protocol {listener.security_protocol}, but controllers "
                f"speak one of {', '.join(GRPC_PROTOCOLS)}"
            )


def _check_voter(voter: tuple[str, int], bound: tuple[NamedListener, ...], advertised: Collection[str]) -> None:
    """Raise if the controller's own address in ``controller.quorum.voters`` is that of another than the first listener.

    A port that no listener has may be that of a proxy.
    """
    port = voter[1]
    others = [x.name for x in bound[1:] if x.port == port]
    if others and port != bound[0].port and bound[0].name not in advertised:
        raise ConfigError(
            f"controller.quorum.voters has {format_address(*voter)} for this controller, which is its listener "
            f"{others[0]}: the addresses must be those of {bound[0].name}, the first of controller.listener.names"
        )


def parse_listeners(text: str) -> tuple[NamedListener, ...]:
    """Return the listeners in ``NAME://host:port,NAME://host:port``; names are converted to capitals, as in Kafka.

    A missing host becomes :data:`ANY_HOST`. The protocol of each listener is in ``listener.security.protocol.map``.

    Raises:
        ConfigError: a listener is malformed, or two share a name or a port other than 0.
    """
    found = _parse_named(text)
    _check_distinct("port", [str(x.port) for x in found if x.port], text)
    return found


def parse_protocol_map(text: str) -> dict[str, str]:
    """Return the security protocols in ``NAME:PROTOCOL,NAME:PROTOCOL``, by listener name.

    Raises:
        ConfigError: an entry is malformed, its protocol does not exist, or a name is duplicated.
    """
    protocols: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, separator, protocol = (p.strip().upper() for p in part.rpartition(":"))
        if not separator or not name or protocol not in PROTOCOLS:
            known = ", ".join(PROTOCOLS)
            raise ConfigError(f'invalid entry "{part}": must be NAME:PROTOCOL with a protocol of {known}')
        if name in protocols:
            raise ConfigError(f'listener {name} is named twice in "{text}"')
        protocols[name] = protocol
    return protocols


def parse_advertised_listeners(text: str) -> tuple[NamedListener, ...]:
    """Return the listeners in ``advertised.listeners``; several may have the same port (KIP-103).

    Raises:
        ConfigError: a listener is malformed or has port 0, or two share a name.
    """
    found = _parse_named(text)
    for listener in found:
        if listener.port == 0:
            raise ConfigError(f"advertised.listeners {listener} has port 0")
    return found


def parse_monitoring_listeners(text: str) -> tuple[NamedListener, ...]:
    """Return the listeners in ``HTTP://host:port,HTTPS://host:port``, of which one may be missing.

    Raises:
        ConfigError: A listener is malformed or has another protocol, or two have the same name or port.
    """
    found = parse_listeners(text)
    for listener in found:
        if listener.name not in (HTTP, HTTPS):
            raise ConfigError(f'invalid listener "{listener}": metrics are served by {HTTP}:// or {HTTPS}://')
    return tuple(dataclasses.replace(x, security_protocol=x.name) for x in found)


def _parse_named(text: str) -> tuple[NamedListener, ...]:
    found = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, separator, address = part.partition("://")
        if not separator or not name:
            raise ConfigError(f'invalid listener "{part}": must be NAME://host:port, say GRPC://host:port')
        if address.startswith(":"):
            found.append(NamedListener(name.upper(), ANY_HOST, parse_address("any" + address)[1]))
        else:
            found.append(NamedListener(name.upper(), *parse_address(address)))
    if not found:
        raise ConfigError("no listener is named: must be NAME://host:port,NAME://host:port,...")
    _check_distinct("name", [x.name for x in found], text)
    return tuple(found)


def _check_distinct(what: str, values: list[str], text: str) -> None:
    for value, count in Counter(values).items():
        if count > 1:
            raise ConfigError(f'each listener must have a different {what}, but {value} occurs twice: "{text}"')


def _with_protocols(listeners: tuple[NamedListener, ...], protocols: Mapping[str, str]) -> tuple[NamedListener, ...]:
    known = []
    for listener in listeners:
        protocol = protocols.get(listener.name)
        if protocol is None:
            raise ConfigError(
                f"no security protocol is defined for listener {listener.name} in listener.security.protocol.map"
            )
        known.append(NamedListener(listener.name, listener.host, listener.port, protocol))
    return tuple(known)


def _check_grpc(key: str, listeners: tuple[NamedListener, ...]) -> None:
    if not any(x.speaks_grpc for x in listeners):
        raise ConfigError(
            f"{key} must have a listener whose security protocol is one of {', '.join(GRPC_PROTOCOLS)}: Tidelog's own "
            f"clients and tools use it for all that Kafka's protocol does not have"
        )


def _check_known(key: str, listeners: Sequence[NamedListener], bound: Sequence[NamedListener]) -> None:
    names = [x.name for x in bound]
    for listener in listeners:
        if listener.name not in names:
            raise ConfigError(f"{key} has {listener}, which is not one of the listeners: {', '.join(names)}")


def _check_reachable(advertised: tuple[NamedListener, ...]) -> None:
    for listener in advertised:
        if listener.host in _EVERY_ADDRESS:
            raise ConfigError(f"advertised.listeners must name an address that others can reach, not {listener}")


def _inter_broker(name: str | None, advertised: tuple[NamedListener, ...]) -> NamedListener:
    """Return the inter-broker listener. Kafka's default is the listener PLAINTEXT; without it,
    another is the default.
    """
    by_name = {x.name: x for x in advertised}
    if name is None:
        kafka = [x.name for x in advertised if not x.speaks_grpc]
        name = PLAINTEXT if PLAINTEXT in kafka else next(iter(kafka), advertised[0].name)
    if name.upper() not in by_name:
        raise ConfigError(
            f"inter.broker.listener.name {name} is not one of the advertised listeners: {', '.join(by_name)}"
        )
    return by_name[name.upper()]


def parse_address(text: str) -> tuple[str, int]:
    """Return (host, port) of ``host:port``.

    Raises:
        ConfigError: the text is malformed, or the port is not from 0 to 65535.
    """
    host, separator, port = text.strip().rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not separator or not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise ConfigError(f'invalid address "{text}": must be host:port with a port from 0 to 65535')
    return host, int(port)


def is_ip_address(host: str) -> bool:
    """Return whether a host is an IPv4 or IPv6 address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """Return (host, port) for each address in ``host:port,host:port``, in order and without duplicates.

    Raises:
        ConfigError: an address is malformed.
    """
    return list(dict.fromkeys(parse_address(part) for part in text.split(",") if part.strip()))


def parse_voters(text: str) -> dict[int, tuple[str, int]]:
    """Return the voters' addresses in ``1@host:port,2@host:port``, by id.

    Raises:
        ConfigError: there is no voter, one is malformed, or an id is duplicated.
    """
    voters: dict[int, tuple[str, int]] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        voter_id, separator, address = part.partition("@")
        if not separator or not (voter_id.isascii() and voter_id.isdigit()):
            raise ConfigError(f'invalid voter "{part}": must be id@host:port')
        if int(voter_id) in voters:
            raise ConfigError(f"voter {voter_id} is named twice in {text!r}")
        voters[int(voter_id)] = parse_address(address)
    if not voters:
        raise ConfigError("no voter is named: must be id@host:port,id@host:port,...")
    return voters


def format_address(host: str, port: int) -> str:
    """Return ``host:port`` with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
