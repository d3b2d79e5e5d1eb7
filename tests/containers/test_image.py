"""The contents of the image: what runs and nothing else, its SBOM, its labels and its health check."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest
from docker import DockerClient

from tidelog.testing.containers import TidelogContainer

REPOSITORY = Path(__file__).parents[2]
INSTALLED = """
import importlib.metadata, json
print(json.dumps([[each.name, each.version] for each in importlib.metadata.distributions()]))
"""
IMPORT_EVERYTHING = """
import importlib, importlib.util, pkgutil, sysconfig
for each in pkgutil.iter_modules([sysconfig.get_path("purelib")]):
    importlib.import_module(each.name)
from tidelog_foundation.records._engine import COMPILED
assert COMPILED
"""
Run = Callable[..., str]


@pytest.fixture(scope="module")
def engine() -> Iterator[DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def run(engine: DockerClient, image: str) -> Run:
    """Run a command in a container of its own with a read-only root, and return its output."""

    def output(*command: str) -> str:
        found: bytes = engine.containers.run(image, list(command), read_only=True, remove=True, stderr=True)
        return found.decode()

    return output


def test_sbom_lists_the_installed_packages(run: Run) -> None:
    sbom = json.loads(run("cat", "/opt/tidelog/sbom.cdx.json"))
    assert sbom["bomFormat"] == "CycloneDX"
    root = sbom["metadata"]["component"]
    listed = [(each["name"], each["version"]) for each in (root, *sbom["components"])]
    installed = [(name, version) for name, version in json.loads(run("python", "-c", INSTALLED))]
    assert sorted(listed) == sorted(installed)
    assert len(listed) > 20
    assert all(each["purl"].startswith("pkg:pypi/") for each in sbom["components"])


def test_packages_without_tests_headers_and_stubs_import(run: Run) -> None:
    run("python", "-W", "ignore", "-c", IMPORT_EVERYTHING)
    unused = "( -name tests -o -name test -o -name *.pyi -o -name *.h -o -name *.pyx -o -name pip -o -name setuptools )"
    assert run("find", "/opt/tidelog", *unused.split()) == ""
    assert run("find", "/opt/tidelog/lib", "-name", "*.pyc").count("\n") > 1_000


def test_labels_are_those_of_the_specification(engine: DockerClient, image: str) -> None:
    labels = engine.images.get(image).labels
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    own = {key.removeprefix("org.opencontainers.image."): value for key, value in labels.items()}
    assert {"title", "description", "source", "documentation", "version", "revision", "licenses"} <= own.keys()
    assert (own["title"], own["version"], own["licenses"]) == ("Tidelog", version, "Apache-2.0")
    assert own["revision"]


def test_health_check_asks_a_combined_server(image: str) -> None:
    with (
        TidelogContainer(image, read_only=True)
        .with_tmpfs_mount("/tmp")
        .with_tmpfs_mount("/var/lib/tidelog", "uid=10001,gid=10001") as server
    ):
        for path in ("/livez", "/readyz"):
            assert server.exec(["sh", "-c", f"test \"$(tidelog-healthcheck {path})\" = '200 OK'"]).exit_code == 0
        assert server.exec(["tidelog-healthcheck", "/nothing"]).exit_code == 1


def test_health_check_of_a_container_without_a_server_passes(run: Run) -> None:
    assert "not checked" in run("tidelog-healthcheck")
