"""The properties of a cluster's processes: those of the manifests, those of its size, and those of its resource. Pure.

A setting that a process would refuse is refused before any pod restarts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import javaproperties

from tidelog_foundation.config import parse_config
from tidelog_foundation.errors import ConfigError
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_operator import external
from tidelog_operator.conditions import Refusal
from tidelog_operator.resources import CONTROLLER, FIRST_ID, NODE, ClusterSpec
from tidelog_quorum.server.config import QuorumConfig

_MANAGED: Final = frozenset(
    {
        "advertised.listeners",
        "authorizer.class.name",
        "broker.rack",
        "cluster.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "health.listener",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dirs",
        "metadata.log.dir",
        "metrics.listeners",
        "node.id",
        "process.roles",
        "sasl.enabled.mechanisms",
        "super.users",
    }
)
_MANAGED_PREFIXES: Final = ("ssl.", "listener.name.")
_REPLICATED: Final = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
_DEFAULT_REPLICATION = 3
_DEFAULT_CONTROLLER: Final = "default.replication.factor"


def voters(spec: ClusterSpec, count: int) -> str:
    """Return ``controller.quorum.voters`` of the first ``count`` controllers."""
    ids = range(FIRST_ID[CONTROLLER], FIRST_ID[CONTROLLER] + count)
    return ",".join(f"{number}@{address}" for number, address in zip(ids, addresses(spec, count), strict=True))


def addresses(spec: ClusterSpec, count: int) -> list[str]:
    """Return the addresses of the first ``count`` controllers."""
    service, first = spec.stateful_set(CONTROLLER), FIRST_ID[CONTROLLER]
    return [f"{service}-{number}.{service}:9093" for number in range(first, first + count)]


def properties(spec: ClusterSpec, role: str, base: str, initial_controllers: int) -> str:
    """Return the text of a role's properties file.

    ``base`` is that of the manifests, and ``initial_controllers`` the number of controllers with which the cluster
    began: later ones get their votes one by one.

    Raises:
        Refusal: the resource has a setting that the process does not know, or that is the operator's.
    """
    pool = spec.pool(role)
    managed = [key for key in pool.config if key in _MANAGED or key.startswith(_MANAGED_PREFIXES)]
    if managed:
        text = f"the operator sets {', '.join(sorted(managed))} itself: remove it from {_where(role)}"
        raise Refusal("InvalidConfiguration", text)
    given = javaproperties.loads(base)
    if role == NODE and spec.external is not None:
        given = external.listener_settings(given, is_secured=spec.security is not None)
    values = {
        **given,
        "cluster.id": spec.cluster_id,
        "controller.quorum.voters": voters(spec, initial_controllers),
        "controller.quorum.bootstrap.servers": ",".join(addresses(spec, initial_controllers)),
        **pool.config,
    }
    _check(spec, role, values)
    return str(javaproperties.dumps(values, timestamp=None, sort_keys=True))


def check_replication(spec: ClusterSpec) -> None:
    """Refuse a cluster with fewer nodes than replicas of the topics of groups and transactions.

    Raises:
        Refusal: there are fewer nodes than the settings need.
    """
    count = spec.nodes.replicas
    for pool, keys in ((spec.nodes, _REPLICATED), (spec.controllers, (_DEFAULT_CONTROLLER,))):
        for key in keys:
            factor = pool.config.get(key, str(_DEFAULT_REPLICATION))
            if factor.isdigit() and int(factor) > count:
                text = f"{key} is {factor}, but spec.nodes.replicas is {count}: set {key} in {_where(pool.role)}"
                raise Refusal("InvalidConfiguration", text)


def _check(spec: ClusterSpec, role: str, values: Mapping[str, str]) -> None:
    resolved = {**values, "node.id": str(FIRST_ID[role])}
    # The processes read these in their pods alone.
    resolved = {key: value for key, value in resolved.items() if not value.startswith("${")}
    try:
        if role == NODE:
            host = f"{spec.stateful_set(NODE)}-{FIRST_ID[NODE]}"
            listeners = (listener.split("://")[0] for listener in values["listeners"].split(","))
            resolved["advertised.listeners"] = ",".join(f"{n}://{host}:{9000 + i}" for i, n in enumerate(listeners))
            DynamicNodeConfig(resolved)
        else:
            name = values["listeners"].split("://")[0]
            resolved["advertised.listeners"] = f"{name}://{addresses(spec, 1)[0]}"
            parse_config(QuorumConfig, resolved)
    except ConfigError as error:
        raise Refusal("InvalidConfiguration", f"{_where(role)}: {error}") from error


def _where(role: str) -> str:
    return "spec.controllers.config" if role == CONTROLLER else "spec.nodes.config"
