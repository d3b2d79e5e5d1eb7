from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers import tls
from benchmarks.peers.apache_kafka import layout, name
from benchmarks.peers.client import wait_for
from benchmarks.peers.comparison import Cost, Found, ratio_of, work_results
from benchmarks.peers.maven import find_installation, pom_version, version_of
from benchmarks.peers.peer import SETTINGS, Size
from benchmarks.rounds import in_turns


def test_ratio_is_the_median_over_the_rounds_of_how_many_times_better_ours_is() -> None:
    ours, theirs = [1.0, 10.0, 2.0], [2.0, 20.0, 2.0]

    assert ratio_of(ours, theirs, "lower") == 2.0
    assert ratio_of(ours, theirs, "higher") == 0.5


def test_result_has_our_median_theirs_and_a_bar_on_the_ratio() -> None:
    found = Found({"Tidelog": [3.0, 1.0, 2.0], "Apache Kafka": [6.0, 4.0, 4.0]})

    result = found.result("cold start", "s", lambda seconds: seconds, "lower", at_least=3)

    assert (result.value, result.compared_with, result.ratio) == (2.0, "Apache Kafka at 4", 2.0)
    assert (result.holds, result.bar_text) == (False, "at least 3 x")


def test_result_of_one_cluster_alone_has_neither_ratio_nor_bar() -> None:
    result = Found({"Tidelog": [3.0]}).result("cold start", "s", lambda seconds: seconds, "lower", at_least=3)

    assert (result.value, result.ratio, result.holds) == (3.0, None, None)


def test_result_with_a_limit_on_our_value_ignores_the_ratio_in_its_bar() -> None:
    found = Found({"Tidelog": [31.0], "Apache Kafka": [62.0]})

    result = found.result("memory", "MB", lambda mb: mb, "lower", at_most_value=30)

    assert (result.ratio, result.holds, result.bar_text) == (2.0, False, "at most 30 MB")
    assert Found({"Tidelog": [29.0]}).result("memory", "MB", lambda mb: mb, "lower", at_most_value=30).holds is True


def test_work_results_give_records_per_second_and_cpu_seconds_per_gigabyte() -> None:
    ours, theirs = Cost(2.0, cluster_cpu_s=1.0, client_cpu_s=0.5), Cost(1.0, cluster_cpu_s=3.0, client_cpu_s=0.5)

    rate, cluster, client, share = work_results(
        "produce", Found({"ours": [ours], "theirs": [theirs]}), 1_000_000, 500, at_least=0.5
    )

    assert (rate.value, rate.ratio, rate.holds) == (500_000, 0.5, True)
    assert (cluster.value, cluster.ratio) == (2.0, 3.0)
    assert (client.value, client.ratio) == (1.0, 1.0)
    assert (share.value, share.compared_with, share.ratio) == (25.0, "theirs at 50", None)


def test_in_turns_returns_what_the_rounds_after_the_warm_up_gave() -> None:
    calls: list[str] = []

    def work(of: str) -> tuple[str, int]:
        calls.append(of)
        return of, len(calls)

    assert in_turns({of: lambda of=of: work(of) for of in "ab"}, rounds=1) == {"a": [("a", 4)], "b": [("b", 3)]}


def test_wait_for_names_the_condition_and_the_timeout_that_has_passed() -> None:
    wait_for(lambda: True, "nothing", timeout_s=0)
    with pytest.raises(TimeoutError, match=r"not within 0\.01 s: broker 1 answers"):
        wait_for(lambda: False, "broker 1 answers", timeout_s=0.01)


def test_layout_of_kafka_gives_each_process_its_role_address_and_folder() -> None:
    found = layout(Size(controllers=2, brokers=1), Path("/data"))

    assert {node: properties["process.roles"] for node, properties in found.items()} == {
        1: "broker",
        101: "controller",
        102: "controller",
    }
    assert len({properties["listeners"] for properties in found.values()}) == 3
    assert len({properties["log.dirs"] for properties in found.values()}) == 3
    for node in (101, 102):
        address = str(found[node]["listeners"]).removeprefix("CONTROLLER://")
        assert f"{node}@{address}" in str(found[1]["controller.quorum.voters"])
    assert found[1].items() >= SETTINGS.items()
    assert found[1]["offsets.topic.replication.factor"] == 1
    assert [name(node) for node in found] == ["broker 1", "controller 1", "controller 2"]


def test_version_is_that_of_the_server_jar_and_a_folder_without_it_is_refused() -> None:
    assert version_of(["kafka-clients-4.0.0.jar", "kafka_2.13-4.1.0.jar"], Path("libs")) == "4.1.0"
    with pytest.raises(FileNotFoundError, match=r"libs has no kafka_2\.13"):
        version_of(["kafka-clients-4.1.0.jar"], Path("libs"))


def test_pom_version_is_the_property() -> None:
    assert pom_version("<properties><kafka.version>4.1.0</kafka.version></properties>") == "4.1.0"


def test_kafka_home_is_taken_before_maven_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.2.1.jar").touch()
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))

    found = find_installation()

    assert (found.version, found.libs) == ("4.2.1", tmp_path / "libs")


def test_settings_of_tls_encrypt_between_brokers_as_for_clients(tmp_path: Path) -> None:
    settings = tls.settings(tmp_path, "CONTROLLER:PLAINTEXT")

    protocols = dict(entry.split(":") for entry in str(settings["listener.security.protocol.map"]).split(","))

    assert protocols[str(settings["inter.broker.listener.name"])] == "SSL"
