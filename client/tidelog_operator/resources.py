"""The resource ``Tidelog`` as a value: names, ids and sizes of a cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelog_operator.conditions import Refusal

GROUP: Final = "tidelog.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
CONTROLLER: Final = "quorum"
NODE: Final = "node"
FIRST_ID: Final = {CONTROLLER: 1, NODE: 101}
"""A pod's ordinal is its ``node.id``; see ``ordinals.start`` in the manifests."""
ZONE: Final = "topology.kubernetes.io/zone"
_SIZES = {CONTROLLER: "10Gi", NODE: "100Gi"}


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """The wanted pods of one role. ``resources`` is None for those of the manifests."""

    role: str
    replicas: int
    storage_size: str
    storage_class: str | None
    resources: Mapping[str, Any] | None
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SecuritySpec:
    """The names of the Secrets of a secured cluster."""

    controller_secret: str
    node_secret: str
    admin_secret: str


@dataclass(frozen=True, slots=True)
class ExternalSpec:
    """The wanted listeners for clients outside of the Kubernetes cluster.

    ``advertised_host`` is None for the address of the machine or of the load balancer. In it, and in ``annotations`` of
    the Services, ``{node}`` stands for the id of a node, or ``bootstrap``.
    """

    type: str
    advertised_host: str | None
    annotations: Mapping[str, str]
    load_balancer_class: str | None
    source_ranges: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A wanted cluster. ``image`` is None for that of the operator's release; ``security`` for an open cluster.

    ``rack_label`` is the label of machines that is a node's rack, or None for the pod's own label.
    """

    name: str
    namespace: str
    cluster_id: str
    image: str | None
    controllers: PoolSpec
    nodes: PoolSpec
    shares_machines: bool
    security: SecuritySpec | None
    external: ExternalSpec | None
    rack_label: str | None

    @property
    def bootstrap_servers(self) -> str:
        """The address for Tidelog's clients."""
        return f"{self.name}.{self.namespace}.svc:9094"

    @property
    def kafka_bootstrap_servers(self) -> str:
        """The address for Kafka's clients."""
        return f"{self.name}.{self.namespace}.svc:9092"

    def stateful_set(self, role: str) -> str:
        """Return the name of the StatefulSet, and of the headless Service, of a role."""
        return f"{self.name}-{role}"

    def pool(self, role: str) -> PoolSpec:
        """Return the pods of a role."""
        return self.controllers if role == CONTROLLER else self.nodes


def owner_reference(kind: str, name: str, uid: str) -> dict[str, Any]:
    """Return the reference of an object to the custom resource with which it is deleted."""
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def parse_cluster(resource: Mapping[str, Any]) -> ClusterSpec:
    """Return the cluster that a resource describes. The API server has checked it against the schema.

    Raises:
        Refusal: a setting is not text, a number or a boolean.
    """
    name, spec = resource["metadata"]["name"], resource.get("spec") or {}
    nodes, security = spec.get("nodes") or {}, spec.get("security")
    return ClusterSpec(
        name=name,
        namespace=resource["metadata"]["namespace"],
        cluster_id=spec.get("clusterId", name),
        image=spec.get("image"),
        controllers=_pool(CONTROLLER, spec.get("controllers") or {}),
        nodes=_pool(NODE, nodes),
        shares_machines=bool(nodes.get("sharedMachines")),
        security=None
        if security is None
        else SecuritySpec(
            security.get("controllerSecret", f"{name}-quorum-tls"),
            security.get("nodeSecret", f"{name}-node-tls"),
            security.get("adminSecret", f"{name}-admin"),
        ),
        external=_external(spec["external"]) if "external" in spec else None,
        rack_label=spec["rack"].get("topologyKey", ZONE) if "rack" in spec else None,
    )


def config_texts(config: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return settings as text, as in a properties file.

    Raises:
        Refusal: a value is a list, an object or null.
    """
    texts = {}
    for key, value in config.items():
        if not isinstance(value, str | int | float):
            text = f"{where} has {value!r} for {key}; a setting is a text, a number, or true or false"
            raise Refusal("InvalidConfiguration", text)
        texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def _external(spec: Mapping[str, Any]) -> ExternalSpec:
    return ExternalSpec(
        spec["type"],
        spec.get("advertisedHost"),
        spec.get("annotations") or {},
        spec.get("loadBalancerClass"),
        tuple(spec.get("loadBalancerSourceRanges") or ()),
    )


def _pool(role: str, spec: Mapping[str, Any]) -> PoolSpec:
    storage = spec.get("storage") or {}
    where = "spec.controllers.config" if role == CONTROLLER else "spec.nodes.config"
    return PoolSpec(
        role,
        spec.get("replicas", 3),
        storage.get("size", _SIZES[role]),
        storage.get("className"),
        spec.get("resources"),
        config_texts(spec.get("config") or {}, where),
    )
