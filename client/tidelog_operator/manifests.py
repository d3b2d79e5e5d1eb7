"""The objects of a cluster: the manifests of ``deploy/k8s``, changed to what its resource says. Pure.

The manifests that people apply with kustomize are the only source. ``base`` gives the objects, and the overlay
``secured`` its patches and properties. Names with ``tidelog-node``, ``tidelog-quorum`` and ``tidelog-admin`` become
those of the resource, and every object and selector gets its label ``app.kubernetes.io/instance``, so that clusters
can share a namespace.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jsonpatch

from tidelog_operator import external
from tidelog_operator.certificates import CA, COMBINED, KeyPair
from tidelog_operator.conditions import Refusal
from tidelog_operator.resources import CONTROLLER, NODE, ClusterSpec, owner_reference
from tidelog_operator.settings import properties

Manifest = dict[str, Any]

INSTANCE: Final = "app.kubernetes.io/instance"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
COMPONENT: Final = "app.kubernetes.io/component"
MANAGER: Final = "tidelog-operator"
INITIAL_CONTROLLERS: Final = "tidelog.dev/initial-controllers"
"""The annotation of the StatefulSet of the controllers with the number with which the cluster began."""
_PROPERTIES = "server.properties"
_NODES = "tidelog-node"
_ROLES = (CONTROLLER, NODE)
# Commands and paths have such names too, and keep them.
_NAMES = re.compile(r"(?<![/\w-])tidelog-(?=(node|quorum|admin)\b)")


@dataclass(frozen=True, slots=True)
class Sources:
    """The manifests of the release.

    ``objects`` are those of ``base``. The properties are by role, ``patches`` those of the overlay ``secured``,
    ``rack`` the operations of the component ``rack`` on the nodes.
    """

    objects: tuple[Manifest, ...]
    properties: Mapping[str, str]
    secured_properties: Mapping[str, str]
    patches: tuple[tuple[Mapping[str, str], list[Any]], ...]
    rack: list[Any]


def desired_objects(
    spec: ClusterSpec,
    sources: Sources,
    *,
    owner_uid: str,
    image: str,
    replicas: Mapping[str, int],
    initial_controllers: int,
    keystores: Mapping[str, str] | None = None,
    rack_account: str | None = None,
) -> list[Manifest]:
    """Return the objects of a cluster in the order in which they are applied: what pods refer to comes first.

    ``replicas`` are those of the StatefulSets by role, which differ from the wanted ones while nodes are drained.
    ``keystores`` are the TLS Secrets of a secured cluster by role; by default, those that the resource names.
    ``rack_account`` is the service account that may read the labels of machines, if there is one.

    Raises:
        Refusal: a setting is not valid, or a rack is wanted and no service account may read it.
    """
    texts = sources.secured_properties if spec.security else sources.properties
    configs = {
        role: _config_map(spec, role, properties(spec, role, _renamed(texts[role], spec.name), initial_controllers))
        for role in _ROLES
    }
    objects = copy.deepcopy(list(sources.objects))
    if spec.security:
        for target, operations in sources.patches:
            objects = [jsonpatch.apply_patch(o, operations) if _matches(o, target) else o for o in objects]
    if spec.rack_label is not None:
        target = {"kind": "StatefulSet", "name": _NODES}
        objects = [jsonpatch.apply_patch(o, sources.rack) if _matches(o, target) else o for o in objects]
    objects = [_named(each, spec) for each in objects]
    for rule in (r for o in objects if o["kind"] == "NetworkPolicy" for r in o["spec"].get("ingress", ())):
        if "from" in rule:
            rule["from"].append({"podSelector": {"matchLabels": {"app.kubernetes.io/name": MANAGER}}})
    for each in objects:
        if each["kind"] == "StatefulSet":
            role = each["metadata"]["labels"][COMPONENT]
            _shape(each, spec, role, configs[role]["metadata"]["name"], image, (keystores or {}).get(role))
            if role == NODE and spec.rack_label is not None:
                _read_rack(each["spec"]["template"]["spec"], spec.rack_label, rack_account)
            each["spec"]["replicas"] = replicas[role]
            if role == CONTROLLER:
                each["metadata"].setdefault("annotations", {})[INITIAL_CONTROLLERS] = str(initial_controllers)
    result = [*configs.values(), *sorted(objects, key=lambda o: o["kind"] == "StatefulSet")]
    for each in result:
        own(each, spec, owner_uid)
    return result


def pod_labels(spec: ClusterSpec, role: str | None = None) -> dict[str, str]:
    """Return the labels of a cluster's pods, or of those of one role."""
    labels = {"app.kubernetes.io/name": "tidelog", INSTANCE: spec.name}
    return labels if role is None else {**labels, COMPONENT: role}


def keystore(spec: ClusterSpec, role: str, pair: KeyPair) -> Manifest:
    """Return the Secret with the one file that processes read, of a pair whose own Secret lacks it."""
    values = {CA: pair.ca, COMBINED: pair.combined}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{spec.stateful_set(role)}-keystore", "labels": pod_labels(spec, role)},
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in values.items()},
    }


def _config_map(spec: ClusterSpec, role: str, text: str) -> Manifest:
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{spec.stateful_set(role)}-{digest}", "labels": pod_labels(spec, role)},
        "data": {_PROPERTIES: text},
    }


def _matches(manifest: Manifest, target: Mapping[str, str]) -> bool:
    found = {"kind": manifest["kind"], "name": manifest["metadata"]["name"]}
    return all(found[key] == value for key, value in target.items())


def _named(manifest: Manifest, spec: ClusterSpec) -> Manifest:
    """Return the object with the cluster's names and labels."""
    named: Manifest = _renamed(manifest, spec.name)
    metadata = named["metadata"]
    if metadata["name"] == "tidelog":
        metadata["name"] = spec.name
    metadata.setdefault("labels", {})
    for labels in _label_sets(named):
        labels[INSTANCE] = spec.name
    return named


def _renamed(value: Any, name: str) -> Any:
    """Return a value with the names of the cluster, except in commands."""
    if isinstance(value, str):
        return _NAMES.sub(f"{name}-", value)
    if isinstance(value, list):
        return [_renamed(each, name) for each in value]
    if isinstance(value, dict):
        return {key: each if key == "command" else _renamed(each, name) for key, each in value.items()}
    return value


def _label_sets(value: Any) -> Iterator[dict[str, str]]:
    """Yield all labels and selectors within an object."""
    if isinstance(value, list):
        for each in value:
            yield from _label_sets(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            is_selector = key == "selector" and isinstance(each, dict) and "matchLabels" not in each
            if key in ("labels", "matchLabels") or is_selector:
                yield each
            else:
                yield from _label_sets(each)


def _shape(
    manifest: Manifest, spec: ClusterSpec, role: str, config_map: str, image: str, tls_secret: str | None
) -> None:
    """Give a StatefulSet the pods that the resource wants. The operator itself restarts them."""
    pool, stateful_set = spec.pool(role), manifest["spec"]
    stateful_set["updateStrategy"] = {"type": "OnDelete"}
    claim = stateful_set["volumeClaimTemplates"][0]["spec"]
    claim["resources"]["requests"]["storage"] = pool.storage_size
    if pool.storage_class is not None:
        claim["storageClassName"] = pool.storage_class
    pod = stateful_set["template"]["spec"]
    if role == NODE and spec.shares_machines:
        pod.pop("affinity", None)
    for volume in pod["volumes"]:
        if volume["name"] == "config":
            volume["configMap"]["name"] = config_map
        elif "secret" in volume:
            is_tls = volume["name"] == "tls" and tls_secret is not None
            volume["secret"]["secretName"] = tls_secret if is_tls else _secret(spec, role, volume["name"])
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        container["image"] = image
    (main,) = pod["containers"]
    if pool.resources is not None:
        main["resources"] = copy.deepcopy(dict(pool.resources))
    if role == NODE and spec.external is not None:
        external.add_listeners(pod, spec, spec.external)


def _read_rack(pod: Manifest, label: str, account: str | None) -> None:
    if account is None:
        text = (
            "spec.rack needs the operator's chart with rack.enabled: nodes have no right to read the labels of machines"
        )
        raise Refusal("RackNotPermitted", text)
    pod["serviceAccountName"] = account
    (init,) = (each for each in pod["initContainers"] if each["name"] == "rack")
    init["env"].append({"name": "ZONE_LABEL", "value": label})


def _secret(spec: ClusterSpec, role: str, volume: str) -> str:
    assert spec.security is not None, "an open cluster mounts no Secret"
    if volume == "admin":
        return spec.security.admin_secret
    return spec.security.controller_secret if role == CONTROLLER else spec.security.node_secret


def own(manifest: Manifest, spec: ClusterSpec, owner_uid: str) -> None:
    """Make an object one of the cluster, which is deleted with its resource."""
    metadata = manifest["metadata"]
    metadata["namespace"] = spec.namespace
    metadata["labels"][MANAGED_BY] = MANAGER
    metadata["ownerReferences"] = [owner_reference("Tidelog", spec.name, owner_uid)]


def process_id(pod_name: str) -> int:
    """Return the ``node.id`` of a pod."""
    return int(pod_name.rpartition("-")[2])
