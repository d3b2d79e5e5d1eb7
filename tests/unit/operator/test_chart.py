"""The Helm chart: what it renders fits Kubernetes, and its Role permits what the operator does and no more."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tidelog_operator.kubernetes import _PATHS
from tidelog_operator.resources import GROUP

REPOSITORY = Path(__file__).parents[3]
CHART = REPOSITORY / "deploy" / "helm" / "tidelog-operator"


def crds() -> list[dict[str, Any]]:
    return [yaml.safe_load(path.read_text()) for path in sorted((CHART / "crds").glob("*.yaml"))]


@pytest.fixture(scope="module")
def helm() -> str:
    found = shutil.which("helm")
    if found is None:
        pytest.skip("helm is not installed")
    return found


@pytest.fixture(scope="module")
def rendered(helm: str) -> list[dict[str, Any]]:
    command = [helm, "template", "operator", str(CHART), "--namespace", "shop", "--kube-version", "1.31"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return [each for each in yaml.safe_load_all(output) if each]


def test_chart_has_no_mistakes(helm: str) -> None:
    done = subprocess.run(
        [helm, "lint", "--strict", str(CHART)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout


def test_chart_refuses_values_that_it_does_not_know(helm: str) -> None:
    command = [helm, "template", "operator", str(CHART), "--kube-version", "1.31", "--set", "replicas=2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "replicas" in done.stderr


def test_rendered_objects_fit_the_schemas_of_kubernetes(rendered: list[dict[str, Any]]) -> None:
    for each in rendered:
        kubernetes_validate.validate(each, "1.31", strict=True)


def test_pod_monitor_reads_the_port_of_the_metrics_where_it_is_wanted(
    helm: str, rendered: list[dict[str, Any]]
) -> None:
    assert "PodMonitor" not in {each["kind"] for each in rendered}
    command = [helm, "template", "operator", str(CHART), "--kube-version", "1.31", "--set"]
    wanted = "podMonitor.enabled=true,podMonitor.labels.release=prometheus"
    output = subprocess.run([*command, wanted], check=True, capture_output=True, text=True, timeout=60).stdout
    found = {each["kind"]: each for each in yaml.safe_load_all(output) if each}
    monitor, pod = found["PodMonitor"], found["Deployment"]["spec"]["template"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (container,) = pod["spec"]["containers"]
    (port,) = (each["containerPort"] for each in container["ports"] if each["name"] == endpoint["port"])
    assert f"--metrics=0.0.0.0:{port}" in container["args"]


def test_account_for_racks_may_get_machines_and_the_operator_may_not(helm: str) -> None:
    command = [helm, "template", "operator", str(CHART), "--kube-version", "1.31", "--namespace", "shop"]
    command += ["--set", "rack.enabled=true"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    found = [each for each in yaml.safe_load_all(output) if each]
    for each in found:
        kubernetes_validate.validate(each, "1.31", strict=True)
    (role,) = (each for each in found if each["kind"] == "ClusterRole")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    (binding,) = (each for each in found if each["kind"] == "ClusterRoleBinding")
    (account,) = (each["name"] for each in binding["subjects"])
    (deployment,) = (each for each in found if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert f"--rack-service-account={account}" in container["args"]
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] != account


def test_role_permits_the_kinds_of_the_operator_in_its_namespace_alone(rendered: list[dict[str, Any]]) -> None:
    assert not [each for each in rendered if each["kind"].startswith("Cluster")]
    (role,) = (each for each in rendered if each["kind"] == "Role")
    permitted = {name for rule in role["rules"] for name in rule["resources"]}
    used = {plural for _, plural in _PATHS.values()}
    assert {name for name in permitted if "/" not in name} == used
    assert "*" not in str(role["rules"])


def test_pod_of_the_operator_has_no_rights_on_its_machine(rendered: list[dict[str, Any]]) -> None:
    (deployment,) = (each for each in rendered if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_every_kind_has_a_status_columns_and_described_fields() -> None:
    found = crds()
    plurals = {plural for prefix, plural in _PATHS.values() if GROUP in prefix}
    assert {crd["spec"]["names"]["plural"] for crd in found} == plurals
    for crd in found:
        (version,) = crd["spec"]["versions"]
        assert version["subresources"] == {"status": {}}
        assert {"Ready", "Reason", "Age"} <= {column["name"] for column in version["additionalPrinterColumns"]}
        schema = version["schema"]["openAPIV3Schema"]
        assert list(undescribed(schema["properties"], crd["metadata"]["name"])) == []


def undescribed(properties: dict[str, Any], path: str) -> Any:
    for name, field in properties.items():
        if "description" not in field:
            yield f"{path}.{name}"
        yield from undescribed(field.get("properties", {}), f"{path}.{name}")
        yield from undescribed(field.get("items", {}).get("properties", {}), f"{path}.{name}")


def test_page_names_every_field_and_every_value_of_the_chart() -> None:
    page = (REPOSITORY / "docs" / "operator.md").read_text()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert [name for name in values if f"`{name}`" not in page] == []
    for crd in crds():
        (version,) = crd["spec"]["versions"]
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        assert [name for name in spec if not re.search(rf"\b{name}\b", page)] == []


def test_versions_are_those_of_the_package() -> None:
    (version,) = re.findall(r'^version = "(.*)"', (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert (values["image"], values["serverImage"]) == (f"tidelog-operator:{version}", f"tidelog:{version}")
