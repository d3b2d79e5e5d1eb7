"""``tidelog dev`` and the first steps that it and the README show."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient as KafkaAdminClient
from typer.testing import CliRunner

from tidelog import AdminClient
from tidelog.testing.ports import free_ports
from tidelog_cli.commands import app

COMMAND = [sys.executable, "-c", "from tidelog_cli.main import main; main()"]


def without_waits(printed: str) -> str:
    """Return the output without the warnings of a machine that is busy."""
    return "".join(line for line in printed.splitlines(True) if "Still waiting after" not in line)


@contextmanager
def running_dev(output: Path, *args: str) -> Iterator[str]:
    """Run ``tidelog dev`` until it says that it is ready; yields what it has printed."""
    ready = "}\n" if "--json" in args else "Ctrl-C stops the cluster"
    with output.open("wb") as file:
        dev = subprocess.Popen([*COMMAND, "dev", *args], stdout=file, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 40
        while ready not in output.read_text():
            assert dev.poll() is None, output.read_text()
            assert time.monotonic() < deadline, output.read_text()
            time.sleep(0.05)
        yield without_waits(output.read_text())
        dev.send_signal(signal.SIGINT)
        assert dev.wait(30) == 0
        assert output.read_text().endswith("stopping\n")
    finally:
        dev.kill()
        dev.wait()


def tidelog(environment: dict[str, str], args: Sequence[str], stdin: str = "") -> str:
    done = subprocess.run(
        [*COMMAND, *args], input=stdin, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_dev_prints_steps_that_work_as_printed(tmp_path: Path) -> None:
    [port, kafka_port] = free_ports(2)
    ports = ("--port", str(port), "--kafka-port", str(kafka_port))
    with running_dev(tmp_path / "out", "--controllers", "1", "--nodes", "1", *ports) as printed:
        assert printed.startswith(f"1 controller and 1 node are ready at 127.0.0.1:{port}; ")
        exported = dict(re.findall(r"export (\w+)=(\S+)", printed))
        assert exported == {"TIDELOG_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}"}
        create, produce, consume = re.findall(r"^  (?:echo \w+ \| )?tidelog (.*)$", printed, re.MULTILINE)
        assert tidelog(exported, shlex.split(create)) == "created hello\n"
        assert tidelog(exported, shlex.split(produce), "world\n") == ""
        assert tidelog(exported, shlex.split(consume)) == "world\n"
        assert f"Clients of Kafka: bootstrap.servers=127.0.0.1:{kafka_port}\n" in printed


def test_secure_dev_prints_steps_that_work_as_printed(tmp_path: Path) -> None:
    [port, kafka_port] = free_ports(2)
    ports = ("--port", str(port), "--kafka-port", str(kafka_port))
    with running_dev(tmp_path / "out", "--controllers", "1", "--nodes", "1", "--secure", *ports) as printed:
        exported = dict(re.findall(r"export (\w+)=(\S+)", printed))
        create, produce, consume = re.findall(r"^  (?:echo \w+ \| )?tidelog (.*)$", printed, re.MULTILINE)
        steps = [(create, "", "created hello\n"), (produce, "world\n", ""), (consume, "", "world\n")]
        for step, stdin, expected in steps:
            done = CliRunner().invoke(app, shlex.split(step), input=stdin, env=exported)
            assert (done.exit_code, done.stdout) == (0, expected), done.output
        settings = dict(re.findall(r"^  ([a-z.]+)=(\S+)$", printed, re.MULTILINE))
        with AdminClient(settings) as admin:
            assert "hello" in admin.list_topics(timeout=30).topics
        [file] = re.findall(r"kcat -F (\S+)", printed)
        kafka = KafkaAdminClient(dict(line.split("=", 1) for line in Path(file).read_text().splitlines()))
        assert "hello" in kafka.list_topics(timeout=30).topics
    assert not Path(exported["TIDELOG_PROFILE"]).exists()


def test_dev_goes_elsewhere_when_its_ports_are_in_use_and_says_so(tmp_path: Path) -> None:
    with socket.socket() as taken, socket.socket() as taken_too:
        for one in (taken, taken_too):
            one.bind(("127.0.0.1", 0))
            one.listen()
        port, kafka_port = taken.getsockname()[1], taken_too.getsockname()[1]
        options = ("--controllers", "1", "--nodes", "1", "--port", str(port), "--kafka-port", str(kafka_port))
        with running_dev(tmp_path / "out", *options, "--json") as printed:
            document = json.loads(printed[printed.index("{") :])
            for key, busy in (("bootstrap_servers", port), ("kafka_bootstrap_servers", kafka_port)):
                host, other = document[key].split(":")
                assert (host, other != str(busy)) == ("127.0.0.1", True)
                assert f"port {busy} is in use, so node 1 listens on port {other}\n" in printed


@pytest.mark.slow
def test_dev_starts_again_with_the_data_and_the_ports_that_it_kept(tmp_path: Path) -> None:
    sizes = ["--controllers", "1", "--nodes", "1", "--data-dir", str(tmp_path / "data")]
    [port, kafka_port] = free_ports(2)
    servers = ["--bootstrap-servers", f"127.0.0.1:{port}"]
    with running_dev(tmp_path / "out", *sizes, "--port", str(port), "--kafka-port", str(kafka_port)):
        assert CliRunner().invoke(app, ["topic", "create", "kept", *servers]).exit_code == 0
    with running_dev(tmp_path / "out", *sizes) as printed:
        assert f"Clients of Kafka: bootstrap.servers=127.0.0.1:{kafka_port}\n" in printed
        assert "kept   " in CliRunner().invoke(app, ["topic", "list", *servers]).stdout
        second = CliRunner().invoke(app, ["dev", *sizes])
        assert second.exit_code == 1
        assert second.stdout == ""
        assert f"{tmp_path / 'data'} is in use by another local cluster: stop that one" in second.stderr
        assert len(second.stderr.splitlines()) == 1


@pytest.mark.slow
def test_dev_starts_again_at_once_after_it_was_killed(tmp_path: Path) -> None:
    args = ["dev", "--controllers", "1", "--nodes", "1", "--data-dir", str(tmp_path / "data"), "--json"]
    told = []
    for is_last in (False, True):
        with subprocess.Popen([*COMMAND, *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as dev:
            assert dev.stdout is not None
            told.append(json.loads("".join(iter(dev.stdout.readline, "}\n")) + "}"))
            dev.send_signal(signal.SIGINT if is_last else signal.SIGKILL)
            dev.communicate(timeout=60)
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--set", "no.such.key=1"), "no.such.key"),
        (("--set", "num.partitions=none", "--controllers", "1", "--nodes", "1"), "num.partitions"),
        (("--nodes", "0"), "nodes"),
    ],
)
def test_dev_says_what_is_wrong_without_a_traceback(args: tuple[str, ...], text: str) -> None:
    done = CliRunner().invoke(app, ["dev", *args])
    assert done.exit_code in (1, 2)
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert isinstance(done.exception, SystemExit)


def test_dev_names_a_folder_that_cannot_be_created() -> None:
    done = subprocess.run(
        [*COMMAND, "dev", "--data-dir", "/proc/nowhere"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "/proc/nowhere" in done.stderr
    assert "Traceback" not in done.stderr
