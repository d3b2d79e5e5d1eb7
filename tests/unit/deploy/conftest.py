"""Renders the kustomizations as far as they use kustomize, and checks that what comes out fits together.

The renderer knows the few fields that the project's kustomizations use and refuses every other one. The checker
returns sentences, one per mistake, so that a test can ask both for none (the manifests) and for a certain one (a
broken manifest).
"""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

Manifest = dict[str, Any]

REPOSITORY = Path(__file__).parents[3]
KUSTOMIZATIONS = REPOSITORY / "deploy" / "k8s"
_STOP_S = 30
"""The least time for a controlled shutdown."""
_KNOWN_FIELDS = {"apiVersion", "kind", "namespace", "resources", "configMapGenerator", "replicas", "patches"}
_NO_SCHEMA = {"cert-manager.io/v1", "monitoring.coreos.com/v1"}
"""The resources of operators, whose schemas are not among those of Kubernetes."""
_POD_NAME = "statefulset.kubernetes.io/pod-name"
_MACHINE_IP = "192.0.2.7"
_HASH = "-0123456789"


@dataclass(frozen=True, slots=True)
class Pod:
    """One replica of a StatefulSet as the kubelet starts it: name, command line, and properties with its variables."""

    name: str
    ordinal: int
    command: tuple[str, ...]
    properties: str

    @property
    def overrides(self) -> list[str]:
        """The ``key=value`` texts of the command line."""
        return [value for flag, value in zip(self.command, self.command[1:], strict=False) if flag == "--override"]

    @property
    def settings(self) -> dict[str, str]:
        """The keys of the properties and, over them, those of the command line."""
        lines = [line for line in self.properties.splitlines() if line and not line.startswith("#")]
        return dict(line.split("=", 1) for line in [*lines, *self.overrides])


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def render() -> Callable[..., list[Manifest]]:
    """Give the manifests of a kustomization below deploy/k8s, with components, which change and add manifests."""
    return lambda name, *components: _rendered(KUSTOMIZATIONS / name, [KUSTOMIZATIONS / c for c in components])


@pytest.fixture(scope="session")
def problems() -> Callable[[list[Manifest]], list[str]]:
    """Give a sentence for each mistake in the manifests of one cluster."""
    return lambda manifests: list(_problems(manifests))


@pytest.fixture(scope="session")
def pods() -> Callable[..., list[Pod]]:
    """Give the pods of a StatefulSet; ``zone`` is the label that Kubernetes copies from the machine."""
    return _pods


def _rendered(folder: Path, components: list[Path]) -> list[Manifest]:
    manifests = _generated(folder, [])
    for component in components:
        manifests = _generated(component, manifests)
    for manifest in manifests:
        if manifest["kind"] in ("StatefulSet", "Deployment"):
            for volume in manifest["spec"]["template"]["spec"]["volumes"]:
                if "configMap" in volume:
                    volume["configMap"]["name"] += _HASH
        if manifest["kind"] == "ConfigMap":
            manifest["metadata"]["name"] += _HASH
    return manifests


def _generated(folder: Path, former: list[Manifest]) -> list[Manifest]:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := kustomization.keys() - _KNOWN_FIELDS:
        raise AssertionError(f"{folder}: the renderer of the tests does not know {sorted(unknown)}")
    manifests = list(former)
    for name in kustomization.get("resources", []):
        path = folder / name
        manifests += _generated(path, []) if path.is_dir() else _read(path)
    for entry in kustomization.get("configMapGenerator", []):
        made, behavior = _config_map(folder, entry), entry.get("behavior")
        if behavior is not None:
            replaced = _one(manifests, "ConfigMap", entry["name"])
            manifests.remove(replaced)
            if behavior == "merge":
                made["data"] = replaced["data"] | made["data"]
        manifests.append(made)
    for entry in kustomization.get("replicas", []):
        _one(manifests, "StatefulSet", entry["name"])["spec"]["replicas"] = entry["count"]
    for entry in kustomization.get("patches", []):
        for manifest in (m for m in manifests if _is_target(m, entry["target"])):
            _patch(manifest, yaml.safe_load((folder / entry["path"]).read_text()))
    if (namespace := kustomization.get("namespace")) is not None:
        for manifest in manifests:
            manifest["metadata"]["namespace"] = namespace
            for subject in manifest.get("subjects", []):
                subject["namespace"] = namespace
    return manifests


def _read(path: Path) -> list[Manifest]:
    return copy.deepcopy(_parsed(path))


@functools.cache
def _parsed(path: Path) -> list[Manifest]:
    return [m for m in yaml.safe_load_all(path.read_text()) if m]


def _config_map(folder: Path, entry: dict[str, Any]) -> Manifest:
    files = dict(file.split("=", 1) for file in entry["files"])
    data = {key: (folder / name).read_text() for key, name in files.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": entry["name"]}, "data": data}


def _is_target(manifest: Manifest, target: dict[str, str]) -> bool:
    return manifest["kind"] == target["kind"] and target.get("name") in (None, manifest["metadata"]["name"])


def _patch(manifest: Manifest, operations: list[dict[str, Any]]) -> None:
    for operation in operations:
        *parents, last = operation["path"].removeprefix("/").split("/")
        place: Any = manifest
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if operation["op"] == "remove":
            del place[last]
            continue
        value = copy.deepcopy(operation["value"])
        if isinstance(place, list) and (operation["op"], last) == ("add", "-"):
            place.append(value)
            continue
        if isinstance(place, dict) and operation["op"] == "add":
            place[last] = value
            continue
        assert operation["op"] == "replace", operation
        index = int(last) if isinstance(place, list) else last
        assert isinstance(index, int) or index in place, f"nothing to replace at {operation['path']}"
        place[index] = value


def _one(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = (m for m in manifests if m["kind"] == kind and m["metadata"]["name"] == name)
    return found


def _pods(manifests: list[Manifest], name: str, zone: str = "") -> list[Pod]:
    stateful_set = _one(manifests, "StatefulSet", name)
    spec = stateful_set["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    (config_map,) = (v["configMap"]["name"] for v in spec["template"]["spec"]["volumes"] if "configMap" in v)
    properties = _one(manifests, "ConfigMap", config_map)["data"]["server.properties"]
    start = spec.get("ordinals", {}).get("start", 0)
    found = []
    for ordinal in range(start, start + spec["replicas"]):
        fields = {
            "metadata.name": f"{name}-{ordinal}",
            "metadata.namespace": "production",
            "status.hostIP": _MACHINE_IP,
            "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal),
            "metadata.labels['topology.kubernetes.io/zone']": zone,
        }
        variables = {e["name"]: fields[e["valueFrom"]["fieldRef"]["fieldPath"]] for e in container["env"]}
        command = tuple(_expand(word, variables) for word in [*container["command"], *container["args"]])
        resolved = properties
        for key, value in variables.items():
            resolved = resolved.replace(f"${{env:{key}}}", value)
        found.append(Pod(f"{name}-{ordinal}", ordinal, command, resolved))
    return found


def _expand(word: str, variables: dict[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda match: variables.get(match[1], match[0]), word)


def _problems(manifests: list[Manifest]) -> Iterator[str]:
    schema_problems = list(_schema_problems(manifests))
    yield from schema_problems
    if schema_problems:
        return
    sets = [m for m in manifests if m["kind"] == "StatefulSet"]
    for manifest in manifests:
        yield from _selector_problems(manifest, sets)
        if manifest["kind"] == "Service":
            yield from _service_problems(manifest, sets)
    for stateful_set in sets:
        yield from _governing_service_problems(stateful_set, manifests)
        yield from _volume_problems(stateful_set, manifests)
        yield from _container_problems(stateful_set)
        yield from _setting_problems(stateful_set, manifests)
        yield from _certificate_problems(stateful_set, manifests)
    for deployment in (m for m in manifests if m["kind"] == "Deployment"):
        yield from _deployment_problems(deployment, manifests)


def _schema_problems(manifests: list[Manifest]) -> Iterator[str]:
    names = [_title(m) for m in manifests]
    for name in sorted({n for n in names if names.count(n) > 1}):
        yield f"{name}: declared twice"
    for manifest in manifests:
        if manifest["apiVersion"] in _NO_SCHEMA:
            continue
        if (problem := _schema_problem(json.dumps(manifest))) is not None:
            yield f"{_title(manifest)}: {problem}"


@functools.cache
def _schema_problem(manifest: str) -> str | None:
    """Return what a manifest's schema says against it. Most are the same in all tests; each is looked at once."""
    try:
        kubernetes_validate.validate(json.loads(manifest), kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{'.'.join(map(str, error.path))}: {error.message}"
    return None


def _selector_problems(manifest: Manifest, sets: list[Manifest]) -> Iterator[str]:
    spec = manifest.get("spec", {})
    selector: Any = {
        "StatefulSet": lambda: spec["selector"]["matchLabels"],
        "Service": lambda: spec["selector"],
        "PodDisruptionBudget": lambda: spec["selector"]["matchLabels"],
        "NetworkPolicy": lambda: spec["podSelector"]["matchLabels"],
    }.get(manifest["kind"], lambda: None)()
    if selector is None:
        return
    selected = _selected(selector, sets)
    if manifest["kind"] == "StatefulSet" and selected != [manifest]:
        yield f"{_title(manifest)}: its selector does not select its own pods alone"
    elif len(selected) != 1:
        yield f"{_title(manifest)}: selects the pods of {len(selected)} StatefulSets"


def _selected(selector: dict[str, str], sets: list[Manifest]) -> list[Manifest]:
    return [s for s in sets if _selects(selector, s)]


def _selects(selector: dict[str, str], owner: Manifest) -> bool:
    """The controller of a StatefulSet adds the name of each pod to the labels of the template."""
    labels, spec = dict(owner["spec"]["template"]["metadata"]["labels"]), owner["spec"]
    if owner["kind"] == "StatefulSet" and (pod := selector.get(_POD_NAME)) is not None:
        start = spec.get("ordinals", {}).get("start", 0)
        if pod in {f"{owner['metadata']['name']}-{n}" for n in range(start, start + spec["replicas"])}:
            labels[_POD_NAME] = pod
    return selector.items() <= labels.items()


def _service_problems(service: Manifest, sets: list[Manifest]) -> Iterator[str]:
    for stateful_set in _selected(service["spec"]["selector"], sets):
        ports = _container_ports(stateful_set)
        for port in service["spec"]["ports"]:
            if ports.get(port["targetPort"]) != port["port"]:
                yield f"{_title(service)}: port {port['port']} is not that of the pods' port {port['targetPort']!r}"


def _governing_service_problems(stateful_set: Manifest, manifests: list[Manifest]) -> Iterator[str]:
    name = stateful_set["spec"]["serviceName"]
    services = [m for m in manifests if m["kind"] == "Service" and m["metadata"]["name"] == name]
    if not any(stateful_set in _selected(s["spec"]["selector"], [stateful_set]) for s in services):
        yield f"{_title(stateful_set)}: no Service {name} selects its pods"
    for service in services:
        if service["spec"].get("clusterIP") != "None" or not service["spec"].get("publishNotReadyAddresses"):
            yield f"{_title(service)}: must be headless and publish addresses that are not ready"


def _volume_problems(stateful_set: Manifest, manifests: list[Manifest]) -> Iterator[str]:
    title, spec = _title(stateful_set), stateful_set["spec"]
    volumes = {v["name"] for v in spec["template"]["spec"]["volumes"]}
    volumes |= {c["metadata"]["name"] for c in spec["volumeClaimTemplates"]}
    pod = spec["template"]["spec"]
    mounted = {m["name"] for c in (*pod["containers"], *pod.get("initContainers", ())) for m in c["volumeMounts"]}
    yield from (f"{title}: mounts {name}, which is no volume" for name in sorted(mounted - volumes))
    yield from (f"{title}: never mounts {name}" for name in sorted(volumes - mounted))
    config_maps = {m["metadata"]["name"]: m["data"] for m in manifests if m["kind"] == "ConfigMap"}
    paths = {m["name"]: m["mountPath"] for c in spec["template"]["spec"]["containers"] for m in c["volumeMounts"]}
    files = set()
    for volume in spec["template"]["spec"]["volumes"]:
        if "configMap" in volume and volume["configMap"]["name"] not in config_maps:
            yield f"{title}: there is no ConfigMap {volume['configMap']['name']}"
        elif "configMap" in volume:
            files |= {f"{paths.get(volume['name'])}/{key}" for key in config_maps[volume["configMap"]["name"]]}
    for container in spec["template"]["spec"]["containers"]:
        if files and container["args"][0] not in files:
            yield f"{title}: reads {container['args'][0]}, mounted are {sorted(files)}"


def _container_problems(stateful_set: Manifest) -> Iterator[str]:
    title, pod = _title(stateful_set), stateful_set["spec"]["template"]["spec"]
    if not pod["securityContext"].get("runAsNonRoot") or not pod["securityContext"].get("runAsUser"):
        yield f"{title}: may run as root"
    ports = set(_container_ports(stateful_set).values())
    for container in pod["containers"]:
        if not container["securityContext"].get("readOnlyRootFilesystem"):
            yield f"{title}: may write outside of its volumes"
        declared = {e["name"] for e in container["env"]}
        used = set(re.findall(r"\$\((\w+)\)", " ".join(container["args"])))
        yield from (f"{title}: $({name}) is no variable of the container" for name in sorted(used - declared))
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if container.get(probe, {}).get("grpc", {}).get("port") not in ports:
                yield f"{title}: {probe} does not ask the listener"
        for probe in ("startupProbe", "livenessProbe"):
            if container.get(probe, {}).get("grpc", {}).get("service") != "liveness":
                yield f"{title}: {probe} restarts a process that is not ready"
        yield from _hook_problems(title, pod, container)


def _hook_problems(title: str, pod: dict[str, Any], container: dict[str, Any]) -> Iterator[str]:
    """A preStop hook asks whether the process may stop, and leaves time for the stop itself."""
    hook = container.get("lifecycle", {}).get("preStop", {})
    request, command = hook.get("httpGet", {}), hook.get("exec", {}).get("command", [])
    path = request.get("path", "") or " ".join(command).removeprefix("tidelog-healthcheck ")
    wait = re.fullmatch(r"/safe-to-stop\?wait=(\d+)&unreplicated=ignore", path)
    if wait is None or (request and request["port"] not in {port["name"] for port in container["ports"]}):
        yield f"{title}: preStop does not ask whether the process may stop"
    elif int(wait[1]) + _STOP_S > pod["terminationGracePeriodSeconds"]:
        yield f"{title}: preStop leaves less than {_STOP_S} s of terminationGracePeriodSeconds for the stop"


def _deployment_problems(deployment: Manifest, manifests: list[Manifest]) -> Iterator[str]:
    """A driver of Spark mounts and uses only things and files that are there, and writes to its volumes alone."""
    title, pod = _title(deployment), deployment["spec"]["template"]["spec"]
    if not _selected(deployment["spec"]["selector"]["matchLabels"], [deployment]):
        yield f"{title}: its selector does not select its own pods"
    if not pod["securityContext"].get("runAsNonRoot") or not pod["securityContext"].get("runAsUser"):
        yield f"{title}: may run as root"
    named = {(m["kind"], m["metadata"]["name"]): m for m in manifests}
    if ("ServiceAccount", pod["serviceAccountName"]) not in named:
        yield f"{title}: there is no ServiceAccount {pod['serviceAccountName']}"
    (container,) = pod["containers"]
    if not container["securityContext"].get("readOnlyRootFilesystem"):
        yield f"{title}: may write outside of its volumes"
    volumes = {v["name"]: v for v in pod["volumes"]}
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    yield from (f"{title}: {name} is not both a volume and mounted" for name in sorted(volumes.keys() ^ mounts.keys()))
    files = set()
    for name, volume in volumes.items():
        kind, key = ("ConfigMap", "name") if "configMap" in volume else ("PersistentVolumeClaim", "claimName")
        found = volume.get("configMap") or volume.get("persistentVolumeClaim")
        if found and (kind, found[key]) not in named:
            yield f"{title}: there is no {kind} {found[key]}"
        elif found and kind == "ConfigMap":
            files |= {f"{mounts.get(name)}/{file}" for file in named[kind, found[key]]["data"]}
    read = {word for word in container["args"] if word.startswith("/")}
    yield from (f"{title}: reads {path}, mounted are {sorted(files)}" for path in sorted(read - files))


def _setting_problems(stateful_set: Manifest, manifests: list[Manifest]) -> Iterator[str]:
    title, name = _title(stateful_set), stateful_set["metadata"]["name"]
    claims = {c["metadata"]["name"] for c in stateful_set["spec"]["volumeClaimTemplates"]}
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    durable = [m["mountPath"] for m in container["volumeMounts"] if m["name"] in claims]
    try:
        found = _pods(manifests, name)
        voters = [
            f"{pod.settings['node.id']}@{pod.name}.tidelog-quorum:9093" for pod in _pods(manifests, "tidelog-quorum")
        ]
    except (KeyError, ValueError) as error:
        yield f"{title}: no settings: {error!r}"
        return
    for pod in found:
        settings = pod.settings
        if settings["node.id"] != str(pod.ordinal):
            yield f"{title}: {pod.name} has node.id {settings['node.id']}"
        bound, ports = _by_listener(settings["listeners"]), set(_container_ports(stateful_set).values())
        for listener, address in bound.items():
            if int(address.rpartition(":")[2]) not in ports:
                yield f"{title}: {pod.name} listens at {listener}://{address}, which is no port of the container"
        yield from _advertised_problems(title, pod, bound, _node_ports(pod, stateful_set, manifests))
        # Controllers that are added later begin without a vote, and ask the first ones.
        first = len(bootstrap) if (bootstrap := _bootstrap_servers(manifests)) else len(voters)
        if settings["controller.quorum.voters"].split(",") != voters[:first]:
            yield f"{title}: {pod.name} has the voters {settings['controller.quorum.voters']}, the pods are {voters}"
        for directory in settings.get("log.dirs", settings.get("metadata.log.dir", "")).split(","):
            # A new ext4 volume has lost+found at its top, so data must live one level below.
            if not any(Path(mount) in Path(directory).parents for mount in durable):
                yield f"{title}: {pod.name} keeps data in {directory}, which is not below a claimed volume"


def _certificate_problems(stateful_set: Manifest, manifests: list[Manifest]) -> Iterator[str]:
    """The certificate of a mounted Secret has the names by which others connect to the pods, in namespace tidelog."""
    name, volumes = stateful_set["metadata"]["name"], stateful_set["spec"]["template"]["spec"]["volumes"]
    secrets = {volume["secret"]["secretName"] for volume in volumes if "secret" in volume}
    for certificate in (m for m in manifests if m["kind"] == "Certificate"):
        if certificate["spec"]["secretName"] not in secrets:
            continue
        names = certificate["spec"]["dnsNames"]
        for pod in _pods(manifests, name):
            voters = [address.partition("@")[2] for address in pod.settings["controller.quorum.voters"].split(",")]
            advertised = _by_listener(pod.settings.get("advertised.listeners", "")).values() or voters
            for address in advertised:
                host = address.rpartition(":")[0].replace(".production.", ".tidelog.")
                wildcard = "*." + host.partition(".")[2]
                if host not in names and (wildcard not in names or wildcard.count(".") < 2):
                    yield f"{_title(certificate)}: has no name for {host}"


def _bootstrap_servers(manifests: list[Manifest]) -> list[str]:
    first = _pods(manifests, "tidelog-quorum")[0]
    return [s for s in first.settings.get("controller.quorum.bootstrap.servers", "").split(",") if s]


def _node_ports(pod: Pod, stateful_set: Manifest, manifests: list[Manifest]) -> dict[str, str]:
    """Return the ports at which a pod listens, by the addresses of its machine that lead there and to no other pod."""
    ports = _container_ports(stateful_set)
    return {
        f"{_MACHINE_IP}:{port['nodePort']}": str(ports[port["targetPort"]])
        for service in manifests
        if service["kind"] == "Service" and service["spec"]["selector"].get(_POD_NAME) == pod.name
        for port in service["spec"]["ports"]
    }


def _advertised_problems(title: str, pod: Pod, bound: dict[str, str], node_ports: dict[str, str]) -> Iterator[str]:
    """Every listener of a storage node is advertised, by the name of the pod or its machine, and leads to it."""
    advertised = _by_listener(pod.settings.get("advertised.listeners", ""))
    for listener, address in advertised.items():
        host, _, port = address.rpartition(":")
        target = port if host.startswith(f"{pod.name}.") else node_ports.get(address)
        if target != bound.get(listener, "").rpartition(":")[2]:
            yield f"{title}: {pod.name} advertises {listener}://{address}, where it does not listen"
    if advertised.keys() != bound.keys() and "log.dirs" in pod.settings:
        yield f"{title}: {pod.name} advertises {sorted(advertised)} of its listeners {sorted(bound)}"


def _by_listener(text: str) -> dict[str, str]:
    return dict(part.split("://") for part in text.split(",") if part)


def _container_ports(stateful_set: Manifest) -> dict[str, int]:
    containers = stateful_set["spec"]["template"]["spec"]["containers"]
    return {p["name"]: p["containerPort"] for c in containers for p in c["ports"]}


def _title(manifest: Manifest) -> str:
    return f"{manifest['kind']}/{manifest['metadata']['name'].removesuffix(_HASH)}"
