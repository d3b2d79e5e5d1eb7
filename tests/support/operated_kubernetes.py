"""A namespace of a real Kubernetes with the operator, and its resources."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubernetes_cluster import DEADLINE_S, IMAGE, KubernetesCluster

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "tidelog-operator"
OPERATOR_IMAGE = os.environ.get("TIDELOG_OPERATOR_IMAGE", "tidelog-operator:0.1.0")
_RESOURCES = {"requests": {"cpu": "50m", "memory": "192Mi"}, "limits": {"memory": "512Mi"}}
POOL = {"storage": {"size": "1Gi"}, "resources": _RESOURCES}


class OperatedCluster(KubernetesCluster):
    """A namespace with the operator and a resource ``Tidelog`` named ``tidelog``."""

    def install(self) -> None:
        """Install the chart, and wait until the operator runs."""
        command = ["helm", "install", "operator", str(CHART), "--namespace", self.namespace]
        command += ["--set", f"image={OPERATOR_IMAGE}", "--set", f"serverImage={IMAGE}", "--wait", "--timeout=300s"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr

    def create(self, kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> None:
        """Create or change a resource of the operator."""
        manifest = {
            "apiVersion": "tidelog.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, **metadata},
            "spec": spec,
        }
        command = ["kubectl", "--namespace", self.namespace, "apply", "-f", "-"]
        done = subprocess.run(
            command, input=json.dumps(manifest), capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
        assert done.returncode == 0, done.stderr

    def patch(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        """Change fields of a resource's spec."""
        self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object."""
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def condition(self, kind: str, name: str) -> tuple[str, str, str]:
        """Return status, reason and message of the condition Ready, if it is about the current generation."""
        found = self.get(kind, name)
        status = found.get("status", {})
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return "Unknown", "", ""
        (condition,) = status["conditions"]
        return condition["status"], condition["reason"], condition["message"]

    def wait_ready(self, kind: str, name: str) -> None:
        """Wait until the operator has done everything that a resource asks for."""
        try:
            self.wait_for(lambda: self.condition(kind, name)[0] == "True", f"{kind} {name}")
        except AssertionError as error:
            logs = self.kubectl("logs", "deployment/operator", "--tail=60")
            raise AssertionError(f"{error}\n{self.condition(kind, name)}\n{logs}") from None

    def revisions(self, role: str) -> set[str]:
        """Return the uids of the pods of a role."""
        pods = self._pods(f"app.kubernetes.io/component={role}")
        return {pod["metadata"]["uid"] for pod in pods}


@contextmanager
def operated_cluster() -> Iterator[OperatedCluster]:
    """Yield a namespace with the operator, whose resources go before it does."""
    with OperatedCluster() as created:
        created.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
        created.install()
        try:
            yield created
        finally:
            # The operator removes the finalizers.
            for kind in ("tidelogrebalances", "tidelogtopics", "tidelogusers", "tidelogs"):
                created.kubectl("delete", kind, "--all", "--timeout=120s")
