"""The Kubernetes manifests fit Kubernetes' schemas, each other and the processes' own configuration."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidelog_foundation.config.endpoints import DEFAULT_PROTOCOL_MAP, has_sasl, has_tls, parse_protocol_map

CLUSTERS = (
    "base",
    "overlays/dev",
    "overlays/external",
    "overlays/secured",
    "overlays/cert-manager",
)
KUSTOMIZATIONS = (*CLUSTERS, "spark", "chaos", "overlays/spark-secured")
COMPONENTS = (
    "components/five-controllers",
    "components/network-policies",
    "components/pod-monitor",
    "components/priority",
    "components/rack",
    "components/service-monitor",
)
Manifests = list[dict[str, Any]]


def _manifest(manifests: Manifests, kind: str, name: str) -> dict[str, Any]:
    (found,) = (m for m in manifests if m["kind"] == kind and m["metadata"]["name"] == name)
    return found


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_manifests_have_no_problems(kustomization: str, render: Any, problems: Any) -> None:
    assert problems(render(kustomization)) == []


def test_kustomizations_are_all_tested(repository: Path) -> None:
    folder = repository / "deploy" / "k8s"
    found = {str(path.parent.relative_to(folder)) for path in folder.rglob("kustomization.yaml")}
    assert found == {*KUSTOMIZATIONS, *COMPONENTS}


@pytest.mark.parametrize("cluster", ["base", "overlays/external", "overlays/secured"])
def test_components_fit_a_cluster_alone_and_together(cluster: str, render: Any, problems: Any) -> None:
    for component in COMPONENTS:
        assert problems(render(cluster, component)) == []
    assert problems(render(cluster, *COMPONENTS)) == []


@pytest.mark.parametrize("component", COMPONENTS)
def test_renderer_agrees_with_kustomize_about_a_component(
    component: str, render: Any, repository: Path, tmp_path: Path
) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    shutil.copytree(repository / "deploy" / "k8s", tmp_path / "k8s")
    text = {"resources": ["k8s/base"], "components": [f"k8s/{component}"]}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(text))
    command = [kubectl, "kustomize", str(tmp_path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert _without_hashes(yaml.safe_load_all(output)) == _without_hashes(render("base", component))


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_renderer_agrees_with_kustomize(kustomization: str, render: Any, repository: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    command = [kubectl, "kustomize", str(repository / "deploy" / "k8s" / kustomization)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert _without_hashes(yaml.safe_load_all(output)) == _without_hashes(render(kustomization))


def _without_hashes(manifests: Any) -> list[str]:
    generated = re.compile(
        r'"(tidelog-(?:quorum|node|spark))-[0-9a-z]{10}"|"(tidelog-(?:quorum|node|spark))-0123456789"'
    )
    return sorted(generated.sub(r'"\1\2"', json.dumps(manifest, sort_keys=True)) for manifest in manifests)


def _container(manifests: Manifests, name: str = "tidelog-node") -> Any:
    return _manifest(manifests, "StatefulSet", name)["spec"]["template"]["spec"]["containers"][0]


def _properties(manifests: Manifests, name: str) -> Any:
    return next(m for m in manifests if m["kind"] == "ConfigMap" and m["metadata"]["name"].startswith(name))["data"]


def _misspell_a_field(manifests: Manifests) -> None:
    spec = _manifest(manifests, "StatefulSet", "tidelog-node")["spec"]
    spec["replica"] = spec.pop("replicas")


def _give_a_text_for_a_number(manifests: Manifests) -> None:
    _container(manifests)["ports"][0]["containerPort"] = "9094"


def _declare_a_service_twice(manifests: Manifests) -> None:
    manifests.append(_manifest(manifests, "Service", "tidelog"))


def _select_other_labels(manifests: Manifests) -> None:
    labels = _manifest(manifests, "StatefulSet", "tidelog-node")["spec"]["selector"]["matchLabels"]
    labels["app.kubernetes.io/component"] = "nodes"


def _budget_every_pod(manifests: Manifests) -> None:
    budget = _manifest(manifests, "PodDisruptionBudget", "tidelog-node")
    del budget["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]


def _move_the_service_port(manifests: Manifests) -> None:
    _manifest(manifests, "Service", "tidelog")["spec"]["ports"][0]["port"] = 9092


def _give_the_headless_service_an_address(manifests: Manifests) -> None:
    del _manifest(manifests, "Service", "tidelog-quorum")["spec"]["clusterIP"]


def _rename_the_governing_service(manifests: Manifests) -> None:
    _manifest(manifests, "StatefulSet", "tidelog-node")["spec"]["serviceName"] = "tidelog-nodes"


def _probe_another_port(manifests: Manifests) -> None:
    _container(manifests)["readinessProbe"]["grpc"]["port"] = 9093


def _restart_what_is_not_ready(manifests: Manifests) -> None:
    del _container(manifests)["livenessProbe"]["grpc"]["service"]


def _ask_another_path_before_the_stop(manifests: Manifests) -> None:
    _container(manifests)["lifecycle"]["preStop"]["httpGet"]["path"] = "/readyz"


def _wait_too_long_before_the_stop(manifests: Manifests) -> None:
    _container(manifests)["lifecycle"]["preStop"]["httpGet"]["path"] = "/safe-to-stop?wait=100&unreplicated=ignore"


def _mount_another_volume(manifests: Manifests) -> None:
    _container(manifests)["volumeMounts"][1]["name"] = "logs"


def _forget_the_hash_of_the_config_map(manifests: Manifests) -> None:
    pod = _manifest(manifests, "StatefulSet", "tidelog-node")["spec"]["template"]["spec"]
    next(v for v in pod["volumes"] if "configMap" in v)["configMap"]["name"] = "tidelog-node"


def _read_another_file(manifests: Manifests) -> None:
    _container(manifests)["args"][0] = "/etc/tidelog/node.properties"


def _forget_a_variable(manifests: Manifests) -> None:
    del _container(manifests)["env"][-1]


def _start_the_ordinals_at_zero(manifests: Manifests) -> None:
    del _manifest(manifests, "StatefulSet", "tidelog-quorum")["spec"]["ordinals"]


def _add_a_controller(manifests: Manifests) -> None:
    _manifest(manifests, "StatefulSet", "tidelog-quorum")["spec"]["replicas"] = 5


def _move_the_listener(manifests: Manifests) -> None:
    data = _properties(manifests, "tidelog-node")
    data["server.properties"] = data["server.properties"].replace("0.0.0.0:9094", "0.0.0.0:19094")


def _move_the_kafka_listener(manifests: Manifests) -> None:
    data = _properties(manifests, "tidelog-node")
    data["server.properties"] = data["server.properties"].replace("0.0.0.0:9092", "0.0.0.0:19092")


def _advertise_one_listener_alone(manifests: Manifests) -> None:
    arguments = _container(manifests)["args"]
    place = next(i for i, a in enumerate(arguments) if a.startswith("advertised.listeners="))
    arguments[place] = arguments[place].partition(",PLAINTEXT")[0]


def _advertise_one_pod_for_all(manifests: Manifests) -> None:
    arguments = _container(manifests)["args"]
    arguments[:] = [a.replace("PLAINTEXT://$(POD_NAME)", "PLAINTEXT://tidelog-node-101") for a in arguments]


def _keep_data_in_the_container(manifests: Manifests) -> None:
    data = _properties(manifests, "tidelog-quorum")
    data["server.properties"] = data["server.properties"].replace("/var/lib/tidelog/metadata", "/tmp/metadata")


def _keep_data_at_the_top_of_the_volume(manifests: Manifests) -> None:
    data = _properties(manifests, "tidelog-node")
    data["server.properties"] = data["server.properties"].replace("/var/lib/tidelog/logs", "/var/lib/tidelog")


def _ask_another_program_before_the_stop(manifests: Manifests) -> None:
    _container(manifests)["lifecycle"]["preStop"] = {"exec": {"command": ["tidelog-healthcheck", "/readyz"]}}


def _run_as_root(manifests: Manifests) -> None:
    pod = _manifest(manifests, "StatefulSet", "tidelog-node")["spec"]["template"]["spec"]
    del pod["securityContext"]["runAsNonRoot"]


@pytest.mark.parametrize(
    ("break_it", "expected"),
    [
        (_misspell_a_field, "'replica' was unexpected"),
        (_give_a_text_for_a_number, "'9094' is not of type 'integer'"),
        (_declare_a_service_twice, "Service/tidelog: declared twice"),
        (_select_other_labels, "StatefulSet/tidelog-node: its selector does not select its own pods alone"),
        (_budget_every_pod, "PodDisruptionBudget/tidelog-node: selects the pods of 2 StatefulSets"),
        (_move_the_service_port, "Service/tidelog: port 9092 is not that of the pods' port 'grpc'"),
        (_give_the_headless_service_an_address, "Service/tidelog-quorum: must be headless"),
        (_rename_the_governing_service, "StatefulSet/tidelog-node: no Service tidelog-nodes selects its pods"),
        (_probe_another_port, "StatefulSet/tidelog-node: readinessProbe does not ask the listener"),
        (_restart_what_is_not_ready, "StatefulSet/tidelog-node: livenessProbe restarts a process that is not ready"),
        (_ask_another_path_before_the_stop, "StatefulSet/tidelog-node: preStop does not ask whether"),
        (_ask_another_program_before_the_stop, "StatefulSet/tidelog-node: preStop does not ask whether"),
        (_wait_too_long_before_the_stop, "StatefulSet/tidelog-node: preStop leaves less than 30 s"),
        (_mount_another_volume, "StatefulSet/tidelog-node: mounts logs, which is no volume"),
        (_mount_another_volume, "StatefulSet/tidelog-node: never mounts data"),
        (_forget_the_hash_of_the_config_map, "StatefulSet/tidelog-node: there is no ConfigMap tidelog-node"),
        (_read_another_file, "StatefulSet/tidelog-node: reads /etc/tidelog/node.properties, mounted are"),
        (_forget_a_variable, "StatefulSet/tidelog-node: $(ZONE) is no variable of the container"),
        (_start_the_ordinals_at_zero, "StatefulSet/tidelog-quorum: tidelog-quorum-0 has the voters 1@"),
        (_add_a_controller, "StatefulSet/tidelog-node: tidelog-node-101 has the voters 1@"),
        (_move_the_listener, "StatefulSet/tidelog-node: tidelog-node-101 listens at GRPC://0.0.0.0:19094"),
        (_move_the_kafka_listener, "tidelog-node-101 listens at PLAINTEXT://0.0.0.0:19092, which is no port"),
        (_advertise_one_listener_alone, "tidelog-node-101 advertises ['GRPC'] of its listeners ['GRPC', 'PLAINTEXT']"),
        (
            _advertise_one_pod_for_all,
            "tidelog-node-102 advertises PLAINTEXT://tidelog-node-101.tidelog-node.production",
        ),
        (_keep_data_in_the_container, "StatefulSet/tidelog-quorum: tidelog-quorum-1 keeps data in /tmp/metadata"),
        (_keep_data_at_the_top_of_the_volume, "StatefulSet/tidelog-node: tidelog-node-101 keeps data in /var/lib/tide"),
        (_run_as_root, "StatefulSet/tidelog-node: may run as root"),
    ],
)
def test_checker_names_the_problem_of_a_broken_manifest(
    break_it: Callable[[Manifests], None], expected: str, render: Any, problems: Any
) -> None:
    manifests = render("base")
    break_it(manifests)
    assert any(expected in problem for problem in problems(manifests)), problems(manifests)


@pytest.mark.parametrize(
    ("path", "value"),
    [("selector/statefulset.kubernetes.io~1pod-name", "tidelog-node-101"), ("ports/0/nodePort", 31101)],
)
def test_checker_names_a_service_that_leads_outside_clients_to_another_node(
    path: str, value: object, render: Any, problems: Any
) -> None:
    manifests = render("overlays/external")
    *parents, last = (int(part) if part.isdigit() else part.replace("~1", "/") for part in path.split("/"))
    place = _manifest(manifests, "Service", "tidelog-node-102-external")["spec"]
    for part in parents:
        place = place[part]
    place[last] = value
    expected = "tidelog-node-102 advertises GRPC_EXTERNAL://192.0.2.7:31102, where it does not listen"
    assert any(expected in problem for problem in problems(manifests)), problems(manifests)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("serviceAccountName", "default", "there is no ServiceAccount default"),
        ("securityContext/runAsUser", 0, "may run as root"),
        ("containers/0/securityContext/readOnlyRootFilesystem", False, "may write outside of its volumes"),
        ("containers/0/args/12", "/etc/tidelog-spark/other.py", "reads /etc/tidelog-spark/other.py, mounted are"),
        ("containers/0/volumeMounts/2/name", "works", "work is not both a volume and mounted"),
        ("volumes/1/persistentVolumeClaim/claimName", "claim", "there is no PersistentVolumeClaim claim"),
        ("volumes/0/configMap/name", "tidelog-spark", "there is no ConfigMap tidelog-spark"),
    ],
)
def test_checker_names_the_problem_of_a_broken_driver(
    path: str, value: object, expected: str, render: Any, problems: Any
) -> None:
    manifests = render("spark")
    place = _manifest(manifests, "Deployment", "tidelog-spark-driver")["spec"]["template"]["spec"]
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("/"))
    for part in parents:
        place = place[part]
    place[last] = value
    assert f"Deployment/tidelog-spark-driver: {expected}" in "\n".join(problems(manifests))


def test_checker_names_a_certificate_without_the_name_of_a_pod(render: Any, problems: Any) -> None:
    manifests = render("overlays/cert-manager")
    for name in ("tidelog-quorum", "tidelog-node"):
        _manifest(manifests, "Certificate", name)["spec"]["dnsNames"].pop(0)
    found = problems(manifests)
    assert "Certificate/tidelog-quorum: has no name for tidelog-quorum-1.tidelog-quorum" in found
    assert "Certificate/tidelog-node: has no name for tidelog-node-101.tidelog-node.tidelog.svc" in found


@pytest.mark.parametrize("name", ["tidelog-quorum", "tidelog-node"])
def test_secured_pods_have_no_open_listener(name: str, render: Any, pods: Any) -> None:
    for pod in pods(render("overlays/secured"), name):
        protocols = parse_protocol_map(pod.settings.get("listener.security.protocol.map", DEFAULT_PROTOCOL_MAP))
        listeners = [listener.partition("://")[0] for listener in pod.settings["listeners"].split(",")]
        for listener in listeners:
            auth = pod.settings.get(f"listener.name.{listener.lower()}.ssl.client.auth")
            has_certificates = "required" in (auth, pod.settings.get("ssl.client.auth"))
            assert has_tls(protocols[listener])
            assert has_sasl(protocols[listener]) or has_certificates
        assert pod.settings["authorizer.class.name"]


def test_image_is_that_of_the_version(render: Any, repository: Path) -> None:
    version = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"]
    sets = [m for m in render("base") if m["kind"] == "StatefulSet"]
    images = {c["image"] for s in sets for c in s["spec"]["template"]["spec"]["containers"]}
    assert images == {f"tidelog:{version}"}


def test_images_of_spark_are_those_of_the_version(render: Any, repository: Path) -> None:
    version = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"]
    manifests = render("spark")
    driver = _manifest(manifests, "Deployment", "tidelog-spark-driver")["spec"]["template"]["spec"]["containers"][0]
    properties = dict(line.split(" ", 1) for line in _spark_files(manifests)["spark.properties"].splitlines())
    assert {driver["image"], properties["spark.kubernetes.container.image"]} == {f"tidelog-spark:{version}"}


def test_executors_of_spark_are_as_restricted_as_their_driver(render: Any) -> None:
    manifests = render("spark")
    driver = _manifest(manifests, "Deployment", "tidelog-spark-driver")["spec"]["template"]["spec"]
    executor = yaml.safe_load(_spark_files(manifests)["executor.yaml"])["spec"]
    (own,), (template,) = driver["containers"], executor["containers"]
    assert template["securityContext"] == own["securityContext"]
    assert executor["securityContext"].items() <= driver["securityContext"].items()
    assert {v["name"] for v in executor["volumes"]} == {m["name"] for m in template["volumeMounts"]}
    assert not executor["automountServiceAccountToken"], "executors have no rights in Kubernetes"


def _spark_files(manifests: Manifests) -> dict[str, str]:
    found: dict[str, str] = _properties(manifests, "tidelog-spark")
    return found


def test_node_ids_are_unique_in_the_cluster(render: Any, pods: Any) -> None:
    manifests = render("base")
    ids = [pod.settings["node.id"] for name in ("tidelog-quorum", "tidelog-node") for pod in pods(manifests, name)]
    assert len(ids) == len(set(ids)) == 6


@pytest.mark.parametrize("kustomization", CLUSTERS)
def test_settings_of_both_roles_agree(kustomization: str, render: Any, pods: Any) -> None:
    manifests = render(kustomization)
    shared = {
        (pod.settings["cluster.id"], pod.settings["controller.quorum.voters"])
        for name in ("tidelog-quorum", "tidelog-node")
        for pod in pods(manifests, name)
    }
    assert len(shared) == 1
