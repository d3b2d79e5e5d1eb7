"""``kubectl``, and the pods of a cluster."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog_chaos.drivers.driver import Member

_TIMEOUT_S = 60
_COMPONENT, _INDEX = "app.kubernetes.io/component", "apps.kubernetes.io/pod-index"
_KINDS = {"quorum": "controller", "controller": "controller", "node": "node"}


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that runs a controller or a storage node. ``uid`` changes when another pod takes over the name."""

    member: Member
    name: str
    uid: str
    container: str
    ip: str
    phase: str
    shares_processes: bool
    running: frozenset[str]
    """Names of its running containers, including ephemeral ones."""


class Kubectl:
    """Runs ``kubectl`` in a namespace and a context."""

    def __init__(self, namespace: str, context: str = "") -> None:
        self._options = [f"--namespace={namespace}", *([f"--context={context}"] if context else [])]

    def run(self, *arguments: str) -> str:
        """Run a command and return its output; raises RuntimeError with its error output.

        Ctrl-C does not reach it: a command is done or undone as a whole.
        """
        command = ["kubectl", *self._options, *arguments]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
        except FileNotFoundError:
            raise RuntimeError("kubectl is not installed") from None
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"kubectl {arguments[0]} did not answer in {_TIMEOUT_S} s") from None
        if done.returncode:
            text = done.stderr.strip() or f"exit code {done.returncode}"
            raise RuntimeError(f"kubectl {arguments[0]}: {text}")
        return done.stdout

    def pods(self, selector: str) -> dict[Member, Pod]:
        """Return the pods that match a selector; raises RuntimeError if one is of an unknown kind."""
        found = json.loads(self.run("get", "pods", f"--selector={selector}", "--output=json"))
        pods = [_pod(item) for item in found["items"]]
        return {pod.member: pod for pod in sorted(pods, key=lambda pod: pod.member)}

    def execute(self, pod: Pod, container: str, script: str) -> str:
        """Run a shell script in a container."""
        return self.run("exec", pod.name, f"--container={container}", "--", "sh", "-c", script)


def _pod(item: Mapping[str, Any]) -> Pod:
    metadata, spec, status = item["metadata"], item["spec"], item.get("status", {})
    labels, name = metadata.get("labels", {}), metadata["name"]
    kind = _KINDS.get(labels.get(_COMPONENT, ""))
    index = labels.get(_INDEX) or name.rpartition("-")[2]
    if kind is None or not index.isdecimal():
        raise RuntimeError(f"pod {name} has no label {_COMPONENT} (quorum or node), or no number: choose a --selector")
    statuses = [*status.get("containerStatuses", []), *status.get("ephemeralContainerStatuses", [])]
    return Pod(
        Member("controller" if kind == "controller" else "node", int(index)),
        name,
        metadata["uid"],
        spec["containers"][0]["name"],
        status.get("podIP", ""),
        status.get("phase", ""),
        bool(spec.get("shareProcessNamespace")),
        frozenset(s["name"] for s in statuses if "running" in s.get("state", {})),
    )
