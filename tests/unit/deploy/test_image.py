"""Properties of the image that need no engine: its context, its pins, its user and the wheel inside."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from docker.utils.build import exclude_paths
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PACKAGES = (
    "pyspark_tidelog",
    "tidelog",
    "tidelog_chaos",
    "tidelog_cli",
    "tidelog_connect",
    "tidelog_foundation",
    "tidelog_mirror",
    "tidelog_node",
    "tidelog_operator",
    "tidelog_quorum",
    "tidelog_server",
    "tidelog_spark",
    "tidelog_testing",
)
_IMAGE = {"python_version": "3.12", "python_full_version": "3.12.0", "platform_system": "Linux", "extra": ""}


@pytest.fixture(scope="session")
def context(repository: Path) -> set[str]:
    """Every file that the engine is sent, relative to the repository."""
    patterns = [
        line for line in (repository / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")
    ]
    return {path for path in exclude_paths(str(repository), patterns) if (repository / path).is_file()}


@pytest.fixture(scope="session")
def dockerfile(repository: Path) -> str:
    return (repository / "Dockerfile").read_text().replace("\\\n", " ")


def test_context_is_the_sources_and_nothing_else(context: set[str]) -> None:
    tops = {path.split("/")[0] for path in context}
    assert tops - {"Dockerfile", ".dockerignore"} == {
        "LICENSE",
        "README.md",
        "client",
        "deploy",
        "hatch_build.py",
        "node",
        "pyproject.toml",
        "quorum",
    }
    deployed = {path for path in context if path.startswith("deploy")}
    deployed = {path for path in deployed if not path.startswith("deploy/k8s/")}
    assert deployed == {
        "deploy/constraints.txt",
        "deploy/docker/healthcheck.py",
        "deploy/docker/rack.py",
        "deploy/spark/entrypoint.sh",
    }
    assert not [path for path in context if "__pycache__" in path or path.endswith((".so", ".pyc"))]


@pytest.mark.parametrize("path", ["Dockerfile", "deploy/operator/Dockerfile", "deploy/spark/Dockerfile"])
def test_context_holds_every_source_of_a_copy(context: set[str], repository: Path, path: str) -> None:
    dockerfile = (repository / path).read_text()
    copied = [line.split()[1:-1] for line in dockerfile.splitlines() if re.match(r"COPY (?!--from)", line)]
    sources = [source for words in copied for source in words]
    assert sources
    assert [s for s in sources if s not in context and not any(path.startswith(f"{s}/") for path in context)] == []


def test_dockerfile_runs_as_the_user_of_the_manifests(dockerfile: str, render: Any) -> None:
    (user,) = re.findall(r"^USER (\d+):(\d+)$", dockerfile, re.MULTILINE)
    contexts = [m["spec"]["template"]["spec"]["securityContext"] for m in render("base") if m["kind"] == "StatefulSet"]
    assert {(str(c["runAsUser"]), str(c["runAsGroup"])) for c in contexts} == {user}
    assert f"--uid {user[0]}" in dockerfile


def test_dockerfile_exposes_the_ports_of_the_manifests(dockerfile: str, render: Any) -> None:
    (exposed,) = re.findall(r"^EXPOSE (.*)$", dockerfile, re.MULTILINE)
    sets = [m for m in render("base") if m["kind"] == "StatefulSet"]
    ports = {p["containerPort"] for s in sets for c in s["spec"]["template"]["spec"]["containers"] for p in c["ports"]}
    assert {int(port) for port in exposed.split()} == ports


@pytest.mark.parametrize("path", ["Dockerfile", "deploy/spark/Dockerfile"])
def test_dockerfile_needs_no_buildkit(repository: Path, path: str) -> None:
    """The Python client of the engine, which the container tests build with, speaks to the classic builder alone."""
    dockerfile = (repository / path).read_text()
    assert not re.search(r"RUN --|COPY --(?!from)|<<", dockerfile)


def test_labels_have_the_version_and_the_description_of_the_package(repository: Path, dockerfile: str) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert re.findall(r"^ARG VERSION=(.*)$", dockerfile, re.MULTILINE) == [project["version"]]
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="(.*?)"', dockerfile))
    assert labels["description"] == project["description"]
    assert labels["licenses"] == project["license"]
    assert labels["documentation"] == project["urls"]["Documentation"]
    assert labels["source"] == project["urls"]["Homepage"]


def test_constraints_pin_every_requirement_of_the_image(repository: Path) -> None:
    lines = (repository / "deploy" / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    unmet = [
        f"{requirement} with {pins.get(canonicalize_name(requirement.name), 'no pin')}"
        for requirement in _requirements(repository)
        if not requirement.specifier.contains(pins.get(canonicalize_name(requirement.name), "0"), prereleases=True)
        or canonicalize_name(requirement.name) not in pins
    ]
    assert unmet == []


def _requirements(repository: Path) -> list[Requirement]:
    """Return the requirements of everything that the image installs: the project's and those of its dependencies."""
    pyproject = tomllib.loads((repository / "pyproject.toml").read_text())
    extras = pyproject["project"]["optional-dependencies"]
    todo = [
        *pyproject["project"]["dependencies"],
        *extras["cli"],
        *extras["node"],
        *(each for each in extras["operator"] if not each.startswith("tidelog[")),
        *extras["quorum"],
        *extras["spark"],
        *pyproject["build-system"]["requires"],
        "cyclonedx-bom",
    ]
    found: dict[str, Requirement] = {}
    while todo:
        requirement = Requirement(todo.pop())
        if str(requirement) in found or (requirement.marker and not requirement.marker.evaluate(_IMAGE)):
            continue
        found[str(requirement)] = requirement
        try:
            todo += distribution(requirement.name).requires or []
        except PackageNotFoundError:
            continue
    return list(found.values())


@pytest.fixture(scope="session")
def wheel_path(repository: Path, context: set[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the Dockerfile's command builds from the engine's context."""
    source, target = tmp_path_factory.mktemp("context"), tmp_path_factory.mktemp("wheels")
    for path in context:
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(repository / path, source / path)
    # A module that an earlier build has left behind, for another version of Python.
    (source / "client" / "tidelog" / "_fast_message.cpython-399-x86_64-linux-gnu.so").touch()
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    environment = {**os.environ, "TIDELOG_PURE_PYTHON": "1"}
    built = subprocess.run(
        [*command, "--wheel-dir", str(target), str(source)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert built.returncode == 0, built.stderr
    (built_wheel,) = target.glob("*.whl")
    return built_wheel


@pytest.fixture(scope="session")
def wheel(wheel_path: Path) -> set[str]:
    """The names in the wheel."""
    with zipfile.ZipFile(wheel_path) as archive:
        return set(archive.namelist())


def test_readme_of_the_wheel_has_links_of_the_released_version_and_no_comments(
    wheel_path: Path, repository: Path
) -> None:
    version = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"]
    with zipfile.ZipFile(wheel_path) as archive:
        metadata = archive.read(f"tidelog-{version}.dist-info/METADATA").decode()
    fields, _, text = metadata.partition("\n\n")
    # Newer ones are refused by the publishing action that the workflow pins.
    assert "Metadata-Version: 2.4\n" in fields
    links = re.findall(r"\]\(([^)]+)\)", text)
    root = f"https://github.com/tidelog/tidelog/blob/v{version}/"
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    paths = {link.removeprefix(root).partition("#")[0] for link in links if link.startswith(root)}
    assert paths
    assert [path for path in paths if not (repository / path).exists()] == []
    assert "<!--" not in text
    assert "pip install 'tidelog[cli,node,quorum]'" in text
    assert ".[" not in text


def test_wheel_without_a_compiler_has_no_compiled_modules(wheel_path: Path, wheel: set[str]) -> None:
    assert wheel_path.name.endswith("-py3-none-any.whl")
    assert [name for name in wheel if name.endswith(".so")] == []


def test_wheel_holds_the_packages_alone(wheel: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel if not name.split("/")[0].endswith(".dist-info")}
    assert tops == set(PACKAGES)


def test_wheel_holds_every_module_of_the_context(wheel: set[str], context: set[str]) -> None:
    sources = {
        path.split("/", 1)[1]
        for path in context
        if path.startswith(("client/", "node/", "quorum/")) and path.endswith((".py", ".pyi", ".typed"))
    }
    assert sources - wheel == set()
    assert {f"{package}/py.typed" for package in PACKAGES} <= wheel


def test_wheel_holds_the_generated_code_of_every_proto(wheel: set[str], repository: Path) -> None:
    protos = sorted((repository / "proto" / "tidelog" / "v1").glob("*.proto"))
    assert protos
    assert {f"tidelog/v1/{proto.stem}_pb2.{ending}" for proto in protos for ending in ("py", "pyi")} <= wheel


def test_wheel_offers_the_commands_of_the_manifests(wheel_path: Path, render: Any) -> None:
    with zipfile.ZipFile(wheel_path) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
        entry_points = configparser.ConfigParser(delimiters="=")
        entry_points.read_string(archive.read(name).decode())
        offered = set(entry_points["console_scripts"])
    sets = [m for m in render("base") if m["kind"] == "StatefulSet"]
    used = {c["command"][0] for s in sets for c in s["spec"]["template"]["spec"]["containers"]}
    assert used == {"tidelog-node", "tidelog-quorum"}
    assert offered == used | {"tidelog", "tidelog-operator", "tidelog-server"}
