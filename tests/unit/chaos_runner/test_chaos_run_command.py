from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from tidelog_chaos.drivers import FaultDriver
from tidelog_chaos.runner import run_chaos
from tidelog_chaos.settings import RunSettings, make_driver
from tidelog_chaos.workload import WorkloadSettings
from tidelog_cli.chaos.run import parse_duration, parse_interval
from tidelog_cli.commands import app
from tidelog_foundation.errors import ConfigError


def test_duration_is_read_with_its_unit() -> None:
    assert [parse_duration(text, "--x") for text in ("90s", "5m", "1.5h", "250ms")] == [90, 300, 5400, 0.25]
    for text in ("5", "5 days", "-1s", ""):
        with pytest.raises(typer.BadParameter, match="is not a duration such as 90s"):
            parse_duration(text, "--duration")
    with pytest.raises(typer.BadParameter, match='"0s" is shorter than 1 ms'):
        parse_duration("0s", "--duration")
    assert parse_duration("0s", "--crash-interval", least_s=0) == 0


def test_interval_is_read_with_both_ends_or_one() -> None:
    assert parse_interval("5s..15s") == (5, 15)
    assert parse_interval("500ms") == (0.5, 0.5)
    with pytest.raises(typer.BadParameter, match="must ascend"):
        parse_interval("15s..5s")


CONFLUENT = ["--client", "confluent-kafka"]


@pytest.mark.parametrize(
    ("options", "exit_code", "said"),
    [
        (["--duration", "long"], 2, "is not a duration such as"),
        (["--faults", "earthquake"], 1, '"earthquake" is not a fault'),
        (["--driver", "cloud"], 1, '"cloud" is not a driver; there are local, netns, kubernetes, none'),
        (["--workload", "bank"], 1, '"bank" is not a workload'),
        (["--workload", "txn"], 1, '"txn" is not a workload; there are queue, subscribe, transactions, spark'),
        (["--workload", "spark", "--consumer", "isolation.level=read_uncommitted"], 1, "not read_uncommitted"),
        (["--workload", "spark", "--secure", "--faults", "credentials"], 1, "no fault credentials"),
        (["--workload", "transactions", "--consumer", "isolation.level=read_uncommitted"], 1, "not read_uncommitted"),
        (["--workload", "subscribe", "--consumer", "group.instance.id=one"], 1, "members need one each"),
        (["--workload", "subscribe", "--consumer", "group.protocol=bank"], 1, '"group.protocol"'),
        (
            ["--workload", "subscribe", "--consumer", "group.protocol=consumer", "--consumer", "session.timeout.ms=1"],
            1,
            '"session.timeout.ms" is not supported with group.protocol=consumer',
        ),
        (["--namespace", "log"], 2, "it is of the driver kubernetes, not of local"),
        (["--driver", "none", "--nodes", "5"], 2, "it is of the driver local or netns, not of none"),
        (["--driver", "kubernetes"], 1, "needs --bootstrap-servers"),
        (["-b", "node1:9094"], 1, "starts a cluster of its own"),
        (["--nodes", "2"], 1, "a replication factor of 3 needs as many nodes, not 2"),
        (["--driver", "none", "-b", "h:1", "--faults", "kill"], 1, "use --faults none"),
        (["--driver", "none", "-b", "h:1", "--faults", "none", "-X", "a=b"], 1, "cannot change the settings"),
        (["-X", "broker.hearbeat=1"], 1, "neither controllers nor nodes know the configuration broker.hearbeat"),
        (["--producer", "linger.mss=1"], 1, '"linger.mss"'),
        (["--producer", "retries=0"], 1, '"enable.idempotence" needs "retries" to be at least 1'),
        (["--producer", "transactional.id=t"], 1, "the workload transactions gives each producer its own"),
        (["--consumer", "fetch.min.bytes=many"], 1, '"fetch.min.bytes"'),
        (["--consumer", "offset.store.method=file"], 1, '"offset.store.method" is not supported'),
        (["--client", "java"], 1, '"java" is not a client; there are tidelog, confluent-kafka'),
        (["--kafka-bootstrap-servers", "h:1"], 1, "the client tidelog speaks gRPC: no --kafka-bootstrap-servers"),
        ([*CONFLUENT, "--kafka-bootstrap-servers", "h:1"], 1, "the driver local knows them"),
        ([*CONFLUENT, "--driver", "none", "-b", "h:1", "--faults", "none"], 1, "needs --kafka-bootstrap-servers"),
        ([*CONFLUENT, "--producer", "linger.mss=1"], 1, 'No such configuration property: "linger.mss"'),
        ([*CONFLUENT, "--producer", "transactional.id=t"], 1, "the workload transactions gives each producer its own"),
        ([*CONFLUENT, "--consumer", "fetch.min.bytes=many"], 1, '"fetch.min.bytes"'),
        (
            [*CONFLUENT, "--workload", "subscribe", "--consumer", "partition.assignment.strategy=sticky"],
            1,
            "Unsupported partition.assignment.strategy: sticky",
        ),
    ],
)
def test_run_command_refuses_what_cannot_be_and_leaves_no_directory(
    options: list[str], exit_code: int, said: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["chaos", "run", "--output", str(tmp_path / "run"), *options])
    assert result.exit_code == exit_code
    assert said in " ".join(result.output.split()).replace("│ │", "")
    assert not (tmp_path / "run").exists()


def test_run_command_names_what_the_workload_spark_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A check that finds nothing must not start a cluster.
    command = ["chaos", "run", "--workload", "spark", "--nodes", "2", "--output", str(tmp_path / "run")]
    monkeypatch.setattr("tidelog_spark.java._candidates", lambda: iter([(tmp_path / "java", "JAVA_HOME")]))
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert f"Spark needs Java 17 or newer, and none was found (JAVA_HOME: {tmp_path / 'java'}" in result.output
    for name in [name for name in sys.modules if name.startswith("tidelog_spark")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ["pyspark", *(name for name in sys.modules if name.startswith("pyspark."))]:
        monkeypatch.setitem(sys.modules, name, None)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "pyspark is not installed: pip install 'tidelog[spark]'" in result.output
    assert not (tmp_path / "run").exists()


class UnreachableDriver(FaultDriver):
    def start(self) -> None:
        raise RuntimeError("no cluster")

    def close(self) -> None:
        raise RuntimeError("nothing to close")


def test_run_that_cannot_be_ended_in_order_says_what_it_was_all_the_same(tmp_path: Path) -> None:
    settings = RunSettings(output=tmp_path, driver="none", bootstrap_servers="h:1", seed=7)
    with pytest.raises(RuntimeError, match="nothing to close"):
        run_chaos(settings, UnreachableDriver(), Console(quiet=True))
    assert json.loads((tmp_path / "run.json").read_text())["seed"] == 7


def test_driver_refuses_faults_that_a_shared_loopback_cannot_have(tmp_path: Path) -> None:
    settings = RunSettings(output=tmp_path, faults=("kill", "partition:ring", "delay"))
    with pytest.raises(ConfigError) as refused:
        make_driver(settings)
    assert refused.value.message.count("use --driver netns") == 2
    assert "kill:" not in refused.value.message


def test_run_command_says_what_to_install_for_clients_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("tidelog_chaos.workload.confluent")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    result = CliRunner().invoke(app, ["chaos", "run", "--output", str(tmp_path / "run"), *CONFLUENT])
    assert result.exit_code == 1
    assert "the client confluent-kafka is not installed: pip install confluent-kafka" in " ".join(result.output.split())


def test_settings_of_a_run_are_written_without_secrets_and_certificates_need_a_secured_cluster(tmp_path: Path) -> None:
    secret = {"ssl.key.password": "canary", "ssl.key.pem": "canary"}
    queue = WorkloadSettings(producer={**secret, "linger.ms": "1"}, consumer=secret)
    servers = {"listener.name.ssl.ssl.keystore.password": "canary", "ssl.keystore.key": "canary"}
    shown = RunSettings(output=tmp_path, queue=queue, servers=servers).as_json()
    assert "canary" not in json.dumps(shown)
    assert shown["queue"]["producer"]["linger.ms"] == "1"
    with pytest.raises(ConfigError, match="certificates: the cluster has no certificates and users without --secure"):
        make_driver(RunSettings(output=tmp_path, faults=("certificates",)))
    make_driver(RunSettings(output=tmp_path, faults=("certificates",), secure=True))
