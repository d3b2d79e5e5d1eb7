"""Kafka's ``server.properties`` as the settings of a node, of a controller, or of both in one process. Pure.

In Kafka, all roles share one set of keys, and ``process.roles`` says which roles a process has. With this key, a file
is read by Kafka's rules: each role ignores the settings of the other; ``controller.listener.names`` divides the
listeners; a controller's listener with Kafka's protocol PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL speaks gRPC with the
same security; and ``metadata.log.dir`` is by default in the first of ``log.dirs``.

A setting of Kafka that has no meaning here (``num.io.threads``) is known in every file: processes start without it and
warn. A setting whose absence would change who may do what, or what is stored, remains an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from tidelog_foundation.config.apache_kafka import WITHOUT_MEANING
from tidelog_foundation.config.broker import DYNAMIC_BROKER_KEYS, READ_ONLY_BROKER_KEYS
from tidelog_foundation.config.endpoints import (
    DEFAULT_PROTOCOL_MAP,
    GRPC,
    GRPC_OF,
    PLAINTEXT,
    NamedListener,
    parse_advertised_listeners,
    parse_listener_names,
    parse_listeners,
    parse_protocol_map,
)
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError

BROKER = "broker"
CONTROLLER = "controller"
PROCESS_ROLES = "process.roles"

_ALIASES = {"log.dir": "log.dirs", "broker.id": "node.id"}
_LISTENER_PREFIX = "listener.name."
_METADATA_FOLDER = "metadata"
"""Unlike Kafka's ``__cluster_metadata-0``, the name is not one of a partition's folder."""
_GRPC_PORT = 9094


@dataclass(frozen=True, slots=True)
class RoleSettings:
    """The settings of one role, and the keys of the file that it leaves out because they have no meaning here."""

    properties: dict[str, str]
    without_meaning: tuple[str, ...] = ()

    @property
    def warning(self) -> str | None:
        """A line that names the keys without meaning; None if there are none."""
        if not self.without_meaning:
            return None
        return f"Settings of Apache Kafka that have no effect here: {', '.join(self.without_meaning)}"


def roles_of(properties: Mapping[str, str]) -> frozenset[str]:
    """Return the roles in ``process.roles``; none if the file does not have the key.

    Raises:
        ConfigError: a role is neither broker nor controller, or named twice, or there is none.
    """
    text = properties.get(PROCESS_ROLES)
    if text is None:
        return frozenset()
    roles = [part.strip() for part in text.split(",")]
    if not set(roles) <= {BROKER, CONTROLLER} or len(set(roles)) != len(roles):
        raise ConfigError(f'process.roles "{text}" must be broker, controller, or broker,controller')
    return frozenset(roles)


def node_settings(properties: Mapping[str, str], own: Collection[str]) -> RoleSettings:
    """Return a node's settings, whose keys are ``own``.

    A node needs a listener for gRPC. If the file has ``process.roles`` and every other listener is PLAINTEXT, port 9094
    is added, the default of Tidelog's clients.

    Raises:
        ConfigError: ``process.roles`` does not have the role, or a setting of listeners is malformed.
    """
    rest, without_meaning = _with_meaning(properties, own)
    if _check_role(rest, BROKER):
        of_controllers = _controller_names(rest)
        rest = _of_role(rest, own, lambda name: name not in of_controllers, of_controllers)
        _add_grpc(rest)
    return RoleSettings(rest, without_meaning)


def controller_settings(properties: Mapping[str, str], own: Collection[str]) -> RoleSettings:
    """Return a controller's settings, whose keys are ``own``.

    Raises:
        ConfigError: ``process.roles`` does not have the role, or a setting of listeners is malformed.
    """
    rest, without_meaning = _with_meaning(properties, own)
    if _check_role(rest, CONTROLLER):
        of_controllers = _controller_names(rest)
        directories = rest.get("log.dirs") or rest.get("log.dir")
        rest = _of_role(rest, own, of_controllers.__contains__, of_controllers)
        if directories and "metadata.log.dir" not in rest:
            rest["metadata.log.dir"] = f"{directories.split(',')[0].strip()}/{_METADATA_FOLDER}"
    return RoleSettings(rest, without_meaning)


def _with_meaning(properties: Mapping[str, str], own: Collection[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the settings with meaning, and the keys of the others.

    Raises:
        ConfigError: a setting asks for something that is not there.
    """
    left_out = []
    for key, value in properties.items():
        if key not in own and key in WITHOUT_MEANING:
            wanted = WITHOUT_MEANING[key]
            if wanted is not None and value.strip().lower() != wanted:
                raise ConfigError(f'invalid value "{value}" for {key}: must be {wanted}')
            left_out.append(key)
    return {key: value for key, value in properties.items() if key not in left_out}, tuple(sorted(left_out))


def _check_role(rest: dict[str, str], role: str) -> bool:
    """Remove ``process.roles``, and return whether the file has it.

    Raises:
        ConfigError: it does not have the role.
    """
    roles = roles_of(rest)
    text = rest.pop(PROCESS_ROLES, None)
    if text is not None and role not in roles:
        programs = {BROKER: "tidelog-node", CONTROLLER: "tidelog-quorum"}
        raise ConfigError(f"process.roles is {text}, but {programs[role]} runs a {role}; tidelog-server runs any role")
    return text is not None


def _controller_names(properties: Mapping[str, str]) -> tuple[str, ...]:
    return parse_listener_names(properties.get("controller.listener.names", GRPC))


def _of_role(
    properties: Mapping[str, str],
    own: Collection[str],
    is_listener: Callable[[str], bool],
    of_controllers: tuple[str, ...],
) -> dict[str, str]:
    """Return the settings of one role, without those that only the other role has, and with its listeners only."""
    others = (DYNAMIC_BROKER_KEYS | READ_ONLY_BROKER_KEYS | _ALIASES.keys()) - set(own)
    found = {key: value for key, value in properties.items() if key not in others}
    protocols = parse_protocol_map(properties.get("listener.security.protocol.map", DEFAULT_PROTOCOL_MAP))
    for name in of_controllers:
        # Kafka's own protocol is not spoken between controllers and nodes.
        protocols[name] = GRPC_OF.get(protocols.get(name, name), protocols.get(name, name))
    found["listener.security.protocol.map"] = ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())
    _keep(found, "listeners", [x for x in parse_listeners(found.get("listeners", "")) if is_listener(x.name)])
    if "advertised.listeners" in found:
        shown = parse_advertised_listeners(found["advertised.listeners"])
        _keep(found, "advertised.listeners", [x for x in shown if is_listener(x.name)])
    return {key: value for key, value in found.items() if _is_of_listener(key, is_listener, of_controllers)}


def _is_of_listener(key: str, is_listener: Callable[[str], bool], of_controllers: tuple[str, ...]) -> bool:
    if not key.startswith(_LISTENER_PREFIX):
        return True
    name = key.removeprefix(_LISTENER_PREFIX).partition(".")[0].upper()
    return is_listener(name) or name in of_controllers


def _keep(properties: dict[str, str], key: str, listeners: Iterable[NamedListener]) -> None:
    text = ",".join(map(str, listeners))
    if text:
        properties[key] = text
    else:
        properties.pop(key, None)


def _add_grpc(properties: dict[str, str]) -> None:
    protocols = parse_protocol_map(properties["listener.security.protocol.map"])
    bound = parse_listeners(properties.get("listeners", ""))
    if any(protocols.get(x.name) != PLAINTEXT for x in bound):
        return
    properties["listener.security.protocol.map"] += "" if GRPC in protocols else f",{GRPC}:{GRPC}"
    properties["listeners"] += f",{NamedListener(GRPC, bound[0].host, _GRPC_PORT)}"
    if "advertised.listeners" in properties:
        host = parse_advertised_listeners(properties["advertised.listeners"])[0].host
        properties["advertised.listeners"] += f",{NamedListener(GRPC, host, _GRPC_PORT)}"
