"""The services of a Compose file, started through the Docker SDK for Python where the Compose plugin is missing.

It knows the keys that ``compose.yaml`` of this project uses and refuses all others, so that a test never runs a service
without one of its settings.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
import yaml
from docker.errors import NotFound
from docker.models.containers import Container
from docker.types import EndpointConfig

_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
_DURATION = re.compile(r"(?:(\d+)m)?(?:(\d+)s)?")
_TOP = {"name", "services", "configs", "volumes"}
_HEALTH = {"test", "interval", "timeout", "retries", "start_period"}
_SERVICE = {
    "cap_drop",
    "command",
    "configs",
    "depends_on",
    "healthcheck",
    "image",
    "mem_limit",
    "ports",
    "read_only",
    "restart",
    "security_opt",
    "stop_grace_period",
    "tmpfs",
    "user",
    "volumes",
}


def load_compose(text: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the document with its variables replaced.

    Raises:
        ValueError: The document has a key, a reference or a condition that the translation does not know.
    """
    replaced = _VARIABLE.sub(lambda match: variables.get(match[1], match[2]), text)
    if "$" in replaced:
        raise ValueError(f"unknown reference {replaced[replaced.index('$') :][:40]!r}: must be ${{NAME:-default}}")
    document: dict[str, Any] = yaml.safe_load(replaced)
    document = {key: value for key, value in document.items() if not key.startswith("x-")}
    _check(document, _TOP, "the document")
    for name, service in document["services"].items():
        _check(service, _SERVICE, name)
        _check(service.get("healthcheck", {}), _HEALTH, f"{name}.healthcheck")
        for other, rule in service.get("depends_on", {}).items():
            if rule != {"condition": "service_healthy"} or other not in document["services"]:
                raise ValueError(f"unknown dependency of {name}: {other}: {rule}")
        for config in service.get("configs", []):
            _check(config, {"source", "target"}, f"{name}.configs")
        for volume in service.get("volumes", []):
            if volume.split(":")[0] not in document["volumes"] or volume.count(":") != 1:
                raise ValueError(f"unknown volume of {name}: {volume}")
    for name, config in document.get("configs", {}).items():
        _check(config, {"file"}, f"configs.{name}")
    if any(document.get("volumes", {}).values()):
        raise ValueError(f"unknown options of volumes: {document['volumes']}")
    return document


def duration_s(text: str) -> int:
    """Return the seconds of a duration such as ``90s`` or ``1m30s``."""
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"unknown duration {text!r}")
    return 60 * int(match[1] or 0) + int(match[2] or 0)


def container_settings(service: Mapping[str, Any], configs: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Return a service as arguments of the Docker SDK's ``containers.create``, without name, network and volumes."""
    health = service["healthcheck"]
    ports = {}
    for mapping in service.get("ports", []):
        host, host_port, port = mapping.split(":")
        ports[f"{port}/tcp"] = (host, int(host_port))
    return {
        "image": service["image"],
        "command": service["command"],
        "user": service["user"],
        "read_only": service["read_only"],
        "tmpfs": dict.fromkeys(service["tmpfs"], ""),
        "cap_drop": service["cap_drop"],
        "security_opt": service["security_opt"],
        "restart_policy": {"Name": service["restart"]},
        "mem_limit": service["mem_limit"],
        "ports": ports,
        "volumes": {
            str((root / configs[each["source"]]["file"]).resolve()): {"bind": each["target"], "mode": "ro"}
            for each in service.get("configs", [])
        },
        "healthcheck": {
            "test": health["test"],
            "retries": health["retries"],
            **{key: duration_s(health[key]) * 10**9 for key in ("interval", "timeout", "start_period")},
        },
    }


class ComposeCluster:
    """The containers, the volumes and the network of a Compose file, under a project name.

    As a context manager, it starts the services in the order of their dependencies, waits until all are healthy, and
    removes everything.
    """

    def __init__(self, path: Path, project: str, variables: Mapping[str, str]) -> None:
        document = load_compose(path.read_text(), variables)
        self.services: dict[str, dict[str, Any]] = document["services"]
        self._configs = document.get("configs", {})
        self._root = path.parent
        self._project = project
        self._client = docker.from_env(timeout=300)
        self._network = f"{project}_default"

    def __enter__(self) -> ComposeCluster:
        try:
            self._client.networks.create(self._network)
            for name in self._in_order():
                for other in self.services[name].get("depends_on", {}):
                    self.wait_healthy(other)
                self.create(name).start()
            for name in self.services:
                self.wait_healthy(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the containers, the volumes and the network."""
        for name in self.services:
            with contextlib.suppress(NotFound):
                self.container(name).remove(force=True)
        for volume in {self._volume(each) for each in self._volumes()}:
            with contextlib.suppress(NotFound):
                self._client.volumes.get(volume).remove()
        with contextlib.suppress(NotFound):
            self._client.networks.get(self._network).remove()
        self._client.close()

    def container(self, name: str) -> Container:
        """Return the service's container in its present state."""
        return self._client.containers.get(f"{self._project}-{name}-1")

    def create(self, name: str, image: str | None = None) -> Container:
        """Create the service's container, with its volumes and perhaps with another image."""
        settings = container_settings(self.services[name], self._configs, self._root)
        for each in self.services[name].get("volumes", []):
            volume, _, target = each.partition(":")
            settings["volumes"][self._volume(volume)] = {"bind": target, "mode": "rw"}
        settings["image"] = image or settings["image"]
        endpoint = EndpointConfig(self._client.api._version, aliases=[name])
        return self._client.containers.create(
            name=f"{self._project}-{name}-1",
            network=self._network,
            networking_config={self._network: endpoint},
            **settings,
        )

    def replace(self, name: str, image: str) -> None:
        """Stop the service within its grace period, and start it with another image and its own volumes."""
        self.stop(name)
        self.container(name).remove()
        self.create(name, image).start()
        self.wait_healthy(name)

    def stop(self, name: str) -> float:
        """Send SIGTERM, and SIGKILL after the grace period; return the seconds until the end."""
        begun_s = time.monotonic()
        self.container(name).stop(timeout=self.grace_period_s(name))
        return time.monotonic() - begun_s

    def grace_period_s(self, name: str) -> int:
        """Return the service's ``stop_grace_period`` in seconds."""
        return duration_s(self.services[name]["stop_grace_period"])

    def wait_healthy(self, name: str, timeout_s: float = 180.0) -> None:
        """Wait until the engine reports the service as healthy.

        Raises:
            AssertionError: It is not in time, or its process ended; the message has its last log lines.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            container = self.container(name)
            state = container.attrs["State"]
            if state["Status"] == "running" and state["Health"]["Status"] == "healthy":
                return
            has_ended = state["Status"] not in ("running", "created") or container.attrs["RestartCount"] > 0
            if has_ended or time.monotonic() > deadline:
                raise AssertionError(f"{name} is not healthy: {state}; it logged {container.logs(tail=30).decode()}")
            time.sleep(0.2)

    def _in_order(self) -> Iterator[str]:
        rest = dict(self.services)
        while rest:
            ready = [name for name, each in rest.items() if not set(each.get("depends_on", {})) & set(rest)]
            if not ready:
                raise ValueError(f"dependencies form a circle: {', '.join(rest)}")
            for name in ready:
                del rest[name]
                yield name

    def _volumes(self) -> Iterator[str]:
        for service in self.services.values():
            for each in service.get("volumes", []):
                yield each.partition(":")[0]

    def _volume(self, name: str) -> str:
        return f"{self._project}_{name}"


def _check(value: Mapping[str, Any], known: Collection[str], where: str) -> None:
    if unknown := sorted(set(value) - set(known)):
        raise ValueError(f"unknown keys of {where}: {', '.join(unknown)}")
