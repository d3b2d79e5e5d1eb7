"""Listeners for clients outside of the Kubernetes cluster: one Service per node, and one to bootstrap from. Pure.

Clients connect to each node by itself, so a node must advertise an address that leads to it alone, and a node knows its
port or its load balancer only after Kubernetes has assigned it. The pods of a StatefulSet share their template, so the
addresses are in a ConfigMap, by id of the node, and the arguments of a pod refer to its own entry. More nodes add
entries, which restarts nobody. An entry that changes has the time of its change: older pods restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidelog_operator.resources import NODE, ClusterSpec, ExternalSpec

Manifest = dict[str, Any]

_GRPC: Final = "grpc"
_KAFKA: Final = "kafka"
_LISTENERS: Final = {_GRPC: ("GRPC_EXTERNAL", 9194, 9094), _KAFKA: ("EXTERNAL", 9192, 9092)}
"""The name of each listener, the port of the container, and that of the Services."""
_OPEN: Final = {_GRPC: "GRPC", _KAFKA: "PLAINTEXT"}
_SECURED: Final = {_GRPC: "GRPC_SASL_SSL", _KAFKA: "SASL_SSL"}
_FOLDER: Final = "/etc/tidelog-external"
_SINCE: Final = "tidelog.dev/since-"
_BOOTSTRAP: Final = "bootstrap"
MARK: Final = {"tidelog.dev/external": "true"}
"""The label of the Services, by which they are found when nobody wants them any more."""


def listener_settings(values: Mapping[str, str], *, is_secured: bool) -> dict[str, str]:
    """Return the settings of a node with the listeners for clients outside."""
    protocols = _SECURED if is_secured else _OPEN
    listeners = [values["listeners"], *(f"{name}://0.0.0.0:{port}" for name, port, _ in _LISTENERS.values())]
    known = values.get("listener.security.protocol.map", ",".join(f"{each}:{each}" for each in _OPEN.values()))
    mapped = [known, *(f"{name}:{protocols[key]}" for key, (name, _, _) in _LISTENERS.items())]
    return {
        **values,
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": ",".join(mapped),
        "inter.broker.listener.name": values.get("inter.broker.listener.name", _OPEN[_KAFKA]),
    }


def services(
    spec: ClusterSpec, external: ExternalSpec, ids: Iterable[int], labels: Mapping[str, str]
) -> list[Manifest]:
    """Return the Service to bootstrap from, then those of the nodes. ``labels`` are those of the pods of nodes."""
    bootstrap = _service(spec, external, _BOOTSTRAP, labels, f"{spec.stateful_set(NODE)}-external")
    found = [bootstrap]
    for number in ids:
        name = f"{spec.stateful_set(NODE)}-{number}"
        own = _service(spec, external, str(number), labels, f"{name}-external")
        own["spec"]["selector"]["statefulset.kubernetes.io/pod-name"] = name
        # A node serves its clients before it is ready.
        own["spec"]["publishNotReadyAddresses"] = True
        if external.type == "NodePort":
            # The node advertises the machine that it runs on, so no other machine needs to pass packets on.
            own["spec"]["externalTrafficPolicy"] = "Local"
        found.append(own)
    return found


def _service(spec: ClusterSpec, external: ExternalSpec, node: str, labels: Mapping[str, str], name: str) -> Manifest:
    ports: list[dict[str, Any]] = [
        {"name": f"{key}-external", "port": port, "targetPort": f"{key}-external"}
        for key, (_, _, port) in _LISTENERS.items()
    ]
    ports[0]["appProtocol"] = "https" if spec.security else "kubernetes.io/h2c"
    service: dict[str, Any] = {
        "type": external.type,
        "externalTrafficPolicy": "Cluster",
        "selector": dict(labels),
        "ports": ports,
    }
    if external.load_balancer_class is not None:
        service["loadBalancerClass"] = external.load_balancer_class
    if external.source_ranges:
        service["loadBalancerSourceRanges"] = list(external.source_ranges)
    annotations = {key: value.replace("{node}", node) for key, value in external.annotations.items()}
    metadata = {"name": name, "labels": {**labels, **MARK}, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service}


def node_addresses(external: ExternalSpec, found: Mapping[int, Mapping[str, Any]]) -> dict[str, str]:
    """Return the entries of the ConfigMap for the Services of nodes, by id, as the API server has them.

    A Service whose port or load balancer is not assigned yet has none.
    """
    entries = {}
    for number, service in found.items():
        host = _host(external, str(number), service)
        for key in _LISTENERS:
            port = _port(external, key, service)
            if port is not None and (host is not None or needs_machine(external)):
                entries[_entry(external, key, number)] = str(port) if host is None else f"{host}:{port}"
    return entries


def last_known(external: ExternalSpec, before: Mapping[str, Any] | None, ids: Iterable[int]) -> dict[str, str]:
    """Return the entries of these nodes in the ConfigMap that exists: a load balancer may lose its address."""
    keys = {_entry(external, key, number) for number in ids for key in _LISTENERS}
    return {key: value for key, value in ((before or {}).get("data") or {}).items() if key in keys}


def needs_machine(external: ExternalSpec) -> bool:
    """Return whether nodes advertise the address of their machine."""
    return external.type == "NodePort" and external.advertised_host is None


def bootstrap_servers(external: ExternalSpec, service: Mapping[str, Any], machines: Iterable[str]) -> dict[str, str]:
    """Return the fields of the status with the addresses for clients outside; none while nothing is assigned.

    ``machines`` are the addresses of the machines that nodes run on.
    """
    host = _host(external, _BOOTSTRAP, service)
    hosts = [host] if host is not None else sorted(set(machines)) if needs_machine(external) else []
    fields = {}
    for key, field in ((_GRPC, "externalBootstrapServers"), (_KAFKA, "externalKafkaBootstrapServers")):
        port = _port(external, key, service)
        if hosts and port is not None:
            fields[field] = ",".join(f"{each}:{port}" for each in hosts)
    return fields


def _host(external: ExternalSpec, node: str, service: Mapping[str, Any]) -> str | None:
    if external.advertised_host is not None:
        return external.advertised_host.replace("{node}", node)
    if external.type == "NodePort":
        return None
    ingress = (service.get("status", {}).get("loadBalancer") or {}).get("ingress") or [{}]
    address = ingress[0].get("hostname") or ingress[0].get("ip")
    return f"[{address}]" if address and ":" in address else address


def _port(external: ExternalSpec, key: str, service: Mapping[str, Any]) -> int | None:
    (port,) = (each for each in service["spec"]["ports"] if each["name"] == f"{key}-external")
    number: int | None = port.get("nodePort") if external.type == "NodePort" else port["port"]
    return number


def config_map(
    spec: ClusterSpec, entries: Mapping[str, str], before: Mapping[str, Any] | None, now: str, labels: Mapping[str, str]
) -> Manifest:
    """Return the ConfigMap with the addresses of all nodes.

    ``before`` is the one that exists. An entry that changes gets the time ``now`` (RFC 3339).
    """
    data = (before or {}).get("data") or {}
    changed = {_id(key) for key, value in entries.items() if data.get(key) != value}
    times = since(before)
    annotations = {f"{_SINCE}{n}": now if n in changed else times.get(n, now) for n in sorted(map(_id, entries))}
    metadata = {"name": config_map_name(spec), "labels": dict(labels), "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(entries)}


def config_map_name(spec: ClusterSpec) -> str:
    """Return the name of the ConfigMap with the addresses."""
    return f"{spec.stateful_set(NODE)}-external"


def since(found: Mapping[str, Any] | None) -> dict[int, str]:
    """Return the times since which nodes have their addresses, by id."""
    annotations = ((found or {}).get("metadata") or {}).get("annotations") or {}
    return {int(key.removeprefix(_SINCE)): text for key, text in annotations.items() if key.startswith(_SINCE)}


def without_address(external: ExternalSpec, ids: Iterable[int], entries: Mapping[str, str]) -> list[int]:
    """Return the ids of the nodes whose address Kubernetes has not assigned yet."""
    return [n for n in ids if any(_entry(external, key, n) not in entries for key in _LISTENERS)]


def add_listeners(pod: Manifest, spec: ClusterSpec, external: ExternalSpec) -> None:
    """Give the pods of nodes the ports, and their addresses to advertise."""
    (main,) = pod["containers"]
    machine = "$(HOST_IP):" if needs_machine(external) else ""
    index = next(i for i, each in enumerate(main["args"]) if each.startswith("advertised.listeners="))
    for key, (name, port, _) in _LISTENERS.items():
        main["args"][index] += f",{name}://{machine}${{dir:{_FOLDER}:{_entry(external, key, '$(POD_INDEX)')}}}"
        main["ports"].append({"name": f"{key}-external", "containerPort": port})
    if machine:
        main["env"].append({"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}})
    main["volumeMounts"].append({"name": "external", "mountPath": _FOLDER, "readOnly": True})
    pod["volumes"].append({"name": "external", "configMap": {"name": config_map_name(spec)}})


def _entry(external: ExternalSpec, key: str, node: int | str) -> str:
    """Return the key of an entry: a port, or a whole address, by the type of the Services."""
    return f"{key}-port-{node}" if needs_machine(external) else f"{key}-{node}"


def _id(key: str) -> int:
    return int(key.rpartition("-")[2])
