"""The blocks of README and of the pages in docs run as they are written, from top to bottom.

A page is one scenario, in a folder of its own and on one cluster: later blocks find what earlier ones made. Only the
addresses are changed, to those of the cluster.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import signal
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import javaproperties
import pytest
import yaml
from acknowledged import wait_for
from document_blocks import Block, blocks_of, commands_of, unfenced
from quick_jvm import write_spark_defaults

from tidelog.consumer.config import ConsumerConfig
from tidelog.producer.config import ProducerConfig
from tidelog.testing import LocalCluster
from tidelog_cli.options.profiles import parse_profiles
from tidelog_foundation.config import describe
from tidelog_foundation.errors import TidelogError
from tidelog_mirror.settings import parse_mirror_settings
from tidelog_node.server.config import NodeConfig
from tidelog_quorum.server.config import QuorumConfig

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
LIMIT_S = 120
"""A block that waits for ever ends so; a busy machine may take a while over the longest."""
CONFIGURATIONS = (NodeConfig, QuorumConfig, ProducerConfig, ConsumerConfig)


_PREFIX = re.compile(r"listener\.name\.\w+\.(plain|scram-sha-\d+|oauthbearer|gssapi)?\.?")
"""The prefix of a setting of one listener, or of one of its mechanisms."""
_LOGIN = "sasl.jaas.config"
"""A setting that only mechanisms of listeners have."""


def _check_properties(text: str) -> None:
    """Refuse a properties file that no server, client or mirror takes, for one of its keys or for their mixture."""
    properties = javaproperties.loads(text)
    if "clusters" in properties:
        parse_mirror_settings(properties)
        return
    keys = {_PREFIX.sub("", key) for key in properties} - {_LOGIN}
    unknown = {cls.__name__: sorted(keys - {info.key for info in describe(cls)}) for cls in CONFIGURATIONS}
    if all(unknown.values()):
        raise ValueError(f"no configuration has all keys of this block; unknown to each: {unknown}")


DATA: Mapping[str, Callable[[str], object]] = {
    "json": lambda text: [json.loads(line) for line in text.splitlines()],
    "properties": _check_properties,
    "toml": lambda text: parse_profiles(tomllib.loads(text)),
    "yaml": yaml.safe_load,
}
NO_CODE = ("text",)
LANGUAGES = ("bash", "console", "python", *DATA, *NO_CODE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_says_of_each_block_what_language_it_is(page: Path) -> None:
    text = page.read_text()
    assert [(b.line, b.language) for b in blocks_of(text) if b.language not in LANGUAGES] == []
    assert unfenced(text) == [], "put ``` with a language around indented blocks"
    assert [b.line for b in blocks_of(text) if b.not_run == ""] == [], "say why a block is not run"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [p for p in PAGES if list(blocks_of(p.read_text()))], ids=lambda page: page.stem)
def test_blocks_of_page_run_as_written(
    page: Path, cluster: LocalCluster, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(write_spark_defaults(tmp_path / "spark-conf")))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks_of(_with_addresses(page.read_text(), cluster)):
        place = f"{page.name}:{block.line}"
        if block.not_run is not None or block.language in NO_CODE:
            continue
        if block.language == "python":
            # Empty lines before it: a traceback names the page's own line.
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)
        elif block.language in DATA:
            _read(place, block)
        else:
            for step, expected in _steps(block):
                _check(place, step, expected, _run(place, step, environment))


@pytest.mark.parametrize(
    ("language", "text", "named"),
    [
        ("properties", "broker.rak=zone-a\n", "broker.rak"),
        ("properties", "broker.rack=a\nauto.offset.reset=earliest\n", "auto.offset.reset"),
        ("toml", '[profiles.a]\nbootstrap_server = "localhost:9094"\n', "bootstrap_server"),
        ("toml", '[profiles.a]\nbootstrap_servers = "h:1"\nclient = {"request.timeout" = "5"}\n', "request.timeout"),
        ("json", "{'a': 1}\n", "double quotes"),
    ],
)
def test_block_of_data_fails_by_name_for_a_key_that_is_not_known(language: str, text: str, named: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=re.escape(named)):
        _read("page.md:1", Block(language, text, 1))


def test_command_that_waits_for_ever_fails_with_its_place_and_ends_with_what_it_started() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"page.md:1: not done after 1 s:") as failed:
        _run("page.md:1", "(sleep 600) &\necho started $!\nwait\n", os.environ, limit_s=1)
    started = re.search(r"\nstarted (\d+)", str(failed.value))
    assert started is not None
    wait_for(lambda: not _is_running(int(started[1])), "the killed process to end", 10)


@pytest.mark.slow
def test_command_of_a_page_ends_as_the_real_one_does(
    environment: dict[str, str], commands: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    real = {**environment, "PATH": environment["PATH"].removeprefix(f"{commands}:")}
    steps = [
        "tidelog topic create t; tidelog topic delete t --yes",
        "tidelog topic create t; echo 1 | tidelog produce t 2> log; tidelog consume t --from-beginning --exit-at-end",
        "cd /; tidelog no-such-command || echo $? $OLDPWD",
        "tidelog consume t 2> log & until grep waiting log; do sleep 0.1; done; kill -TERM $!; wait $! || echo $?",
        "tidelog topic list | head -c 1; tidelog topic delete t --yes",
    ]
    ends: list[list[tuple[int, str, str]]] = []
    for by in (environment, real):
        done = [_run("page.md:1", step, by) for step in steps]
        ends.append([(step.returncode, step.stdout, step.stderr) for step in done])
    assert ends[0] == ends[1]


def test_what_is_not_run_has_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    left_out = [(p.name, b.line, b.not_run) for p in PAGES for b in blocks_of(p.read_text()) if b.not_run is not None]
    for name, line, reason in left_out:
        print(f"{name}:{line}: not run: {reason}")
    assert all(reason for _, _, reason in left_out)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _read(place: str, block: Block) -> None:
    try:
        DATA[block.language](block.text)
    except (ValueError, TidelogError, yaml.YAMLError) as error:
        pytest.fail(f"{place}: {error}")


def _with_addresses(text: str, cluster: LocalCluster) -> str:
    ours, kafkas = cluster.bootstrap_servers, cluster.kafka_bootstrap_servers
    text = re.sub(r"\b(?:localhost|127\.0\.0\.1|node\d):9094(?:,node\d:9094)*", ours, text)
    return re.sub(r"\b(?:localhost|127\.0\.0\.1|node\d):9092\b", kafkas, text)


def _steps(block: Block) -> Iterator[tuple[str, str]]:
    """Return what a block runs, and the output that the page shows of it; empty where it shows none."""
    if block.language == "bash":
        yield block.text, ""
        return
    for command in commands_of(block):
        yield command.text, command.output


def _run(
    place: str, script: str, environment: Mapping[str, str], limit_s: float = LIMIT_S
) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-euo", "pipefail", "-c", script]
    pipe = subprocess.PIPE
    # A session of its own: what waits for ever is a child of bash, and outlives it.
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            pytest.fail(f"{place}: not done after {limit_s} s:\n{script}\n{stdout}\n{stderr}")
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def _check(place: str, script: str, expected: str, done: subprocess.CompletedProcess[str]) -> None:
    """Compare the output, or see that the command succeeds where the page shows no output."""
    if not expected:
        if done.returncode != 0:
            pytest.fail(f"{place}: exit code {done.returncode}:\n{script}\n{done.stdout}\n{done.stderr}")
        return
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if not doctest.OutputChecker().check_output(expected, done.stdout, flags):
        pytest.fail(f"{place}: {script}\nthe page shows:\n{expected}\nit prints:\n{done.stdout}\n{done.stderr}")
