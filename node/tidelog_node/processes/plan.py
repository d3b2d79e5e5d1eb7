"""The settings of the nodes that ``tidelog-node --processes N`` runs, each derived from one file. Pure.

Node ``k`` of ``N``, counted from 0:

- has the id ``node.id + k``;
- listens on, and advertises, each port of the file plus ``1 + k``. The ports of the file themselves lead to any of the
  nodes (``bootstrap.listeners``);
- keeps its partitions below each of ``log.dirs`` in the folder ``node-ID``;
- has the machine's name as its rack, unless the file has a rack, so that the replicas of a partition are on different
  machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tidelog_foundation.config import endpoints
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_node.log.directory.meta_properties import META_PROPERTIES

MAX_PROCESSES: Final = 64
_MAX_PORT: Final = 65_535
_LISTENERS: Final = "listeners"
_ADVERTISED: Final = "advertised.listeners"
_METRICS: Final = "metrics.listeners"
_HEALTH: Final = "health.listener"
_BOOTSTRAP: Final = "bootstrap.listeners"
_RACK: Final = "broker.rack"


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node: its id, and the settings that prevail over those of the file."""

    node_id: int
    overrides: Mapping[str, str]


def plan_nodes(
    properties: Mapping[str, str], count: int, machine: str, exists: Callable[[Path], bool] = Path.exists
) -> list[NodePlan]:
    """Return the nodes of a file, in the order of their ids. ``machine`` is the machine's name.

    Raises:
        ConfigError: ``count`` is out of range; the file lacks a setting; a port is 0, too high or taken twice; a log
            directory has the data of a node that runs alone.
    """
    if not 1 <= count <= MAX_PROCESSES:
        raise ConfigError(f"--processes {count}: must be from 1 to {MAX_PROCESSES}")
    if _BOOTSTRAP in properties:
        raise ConfigError(f"--processes sets {_BOOTSTRAP}, so the file must not have it: {properties[_BOOTSTRAP]}")
    id_key, first_id = _first_id(properties)
    dirs_key, dirs = _log_dirs(properties, exists)
    _check_ports(properties, count)
    rack = {} if properties.get(_RACK) else {_RACK: machine}
    return [
        NodePlan(
            node_id,
            {
                id_key: str(node_id),
                dirs_key: ",".join(str(Path(each) / f"node-{node_id}") for each in dirs),
                **_addresses(properties, 1 + node_id - first_id),
                **rack,
            },
        )
        for node_id in range(first_id, first_id + count)
    ]


def _first_id(properties: Mapping[str, str]) -> tuple[str, int]:
    key, text = _value(properties, "node.id", "broker.id")
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{key} {text}: must be an integer of at least 0")
    return key, int(text)


def _log_dirs(properties: Mapping[str, str], exists: Callable[[Path], bool]) -> tuple[str, list[str]]:
    key, text = _value(properties, "log.dirs", "log.dir")
    dirs = [each.strip() for each in text.split(",") if each.strip()]
    for each in dirs:
        if exists(Path(each) / META_PROPERTIES):
            raise ConfigError(
                f"{key}: {each} has the partitions of a node that runs without --processes: stop it, and move what "
                f"is in the directory to its folder node-ID, or choose another directory"
            )
    return key, dirs


def _value(properties: Mapping[str, str], *keys: str) -> tuple[str, str]:
    for key in keys:
        if properties.get(key, "").strip():
            return key, properties[key].strip()
    raise ConfigError(f'missing required configuration "{keys[0]}"')


def _addresses(properties: Mapping[str, str], distance: int) -> dict[str, str]:
    """Return the settings that are addresses, with ports at this distance from those of the file."""
    found = {_BOOTSTRAP: _join(endpoints.parse_listeners(_value(properties, _LISTENERS)[1]))}
    for key in (_LISTENERS, _ADVERTISED, _METRICS):
        if properties.get(key):
            found[key] = _join(
                tuple(replace(x, port=x.port + distance) for x in endpoints.parse_advertised_listeners(properties[key]))
            )
    if properties.get(_HEALTH):
        host, port = endpoints.parse_address(properties[_HEALTH])
        found[_HEALTH] = endpoints.format_address(host, port + distance)
    return found


def _join(listeners: tuple[endpoints.NamedListener, ...]) -> str:
    return ",".join(map(str, listeners))


def _check_ports(properties: Mapping[str, str], count: int) -> None:
    """Raise if two addresses of this machine would have the same port."""
    taken: dict[int, str] = {}
    for key, port in _ports(properties):
        name = f"{key} with port {port}"
        if port == 0:
            raise ConfigError(f"{name}: with --processes, each address needs a port of its own")
        if port + count > _MAX_PORT:
            raise ConfigError(f"{name}: {count} processes need the ports up to {port + count}, above {_MAX_PORT}")
        for each in range(port, port + count + 1):
            if each in taken:
                raise ConfigError(
                    f"{taken[each]} and {name} both need port {each} for {count} processes: put at least "
                    f"{count + 1} between them"
                )
            taken[each] = name


def _ports(properties: Mapping[str, str]) -> list[tuple[str, int]]:
    found = [(_LISTENERS, x.port) for x in endpoints.parse_listeners(_value(properties, _LISTENERS)[1])]
    if properties.get(_METRICS):
        found += [(_METRICS, x.port) for x in endpoints.parse_listeners(properties[_METRICS])]
    if properties.get(_HEALTH):
        found.append((_HEALTH, endpoints.parse_address(properties[_HEALTH])[1]))
    return found
