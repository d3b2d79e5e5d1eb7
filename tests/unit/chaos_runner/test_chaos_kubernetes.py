"""The driver for Kubernetes, against an executable ``kubectl`` that notes what it is told and answers from files."""

from __future__ import annotations

import json
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidelog_chaos.drivers import CLIENTS, Delay, Member
from tidelog_chaos.drivers.kubernetes import KubernetesDriver
from tidelog_chaos.settings import KubernetesSettings, RunSettings, make_driver
from tidelog_foundation.errors import ConfigError

NODE, OTHER, CONTROLLER = Member("node", 101), Member("node", 102), Member("controller", 1)
SETTINGS = KubernetesSettings(namespace="log", selector="app=tidelog", context="test", image="tools:1")
FAKE = """#!{python}
import json, pathlib, sys
home = pathlib.Path({home!r})
arguments = [a for a in sys.argv[1:] if not a.startswith(("--namespace=", "--context="))]
with (home / "calls").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
refused = json.loads((home / "refused").read_text())
if arguments[0] in refused:
    sys.exit("Error from server: " + refused[arguments[0]])
pods = json.loads((home / "pods").read_text())
match arguments[0]:
    case "get":
        print(json.dumps({{"items": pods}}))
    case "auth":
        print("yes")
    case "debug":
        name = next(a.partition("=")[2] for a in arguments if a.startswith("--container="))
        custom = next(a.partition("=")[2] for a in arguments if a.startswith("--custom="))
        (home / "custom").write_text(pathlib.Path(custom).read_text())
        for pod in pods:
            if pod["metadata"]["name"] == arguments[1]:
                pod["status"]["ephemeralContainerStatuses"] = [{{"name": name, "state": {{"running": {{}}}}}}]
        (home / "pods").write_text(json.dumps(pods))
"""


class FakeKubectl:
    def __init__(self, home: Path) -> None:
        self.home = home
        command = home / "kubectl"
        command.write_text(FAKE.format(python=sys.executable, home=str(home)))
        command.chmod(command.stat().st_mode | stat.S_IXUSR)
        self.refuse()
        self.set_pods(
            pod("tidelog-quorum-1", "quorum"), pod("tidelog-node-101", "node"), pod("tidelog-node-102", "node")
        )

    def refuse(self, **commands: str) -> None:
        (self.home / "refused").write_text(json.dumps(commands))

    def set_pods(self, *pods: dict[str, Any]) -> None:
        (self.home / "pods").write_text(json.dumps(pods))

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.home / "calls").read_text().splitlines()]

    def of(self, command: str) -> list[list[str]]:
        """The arguments of each call of a command, behind the options that all have."""
        return [call[3:] for call in self.calls if call[2] == command]

    def scripts(self, pod_name: str) -> list[str]:
        """The scripts that ran in a pod's containers, in a shell that accepts their syntax."""
        scripts = [call[-1] for call in self.of("exec") if call[0] == pod_name]
        for script in scripts:
            subprocess.run(["sh", "-n", "-c", script], check=True)
        return scripts


def pod(name: str, component: str, **status: Any) -> dict[str, Any]:
    index = name.rpartition("-")[2]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"app.kubernetes.io/component": component}},
        "spec": {"containers": [{"name": component}], "shareProcessNamespace": True},
        "status": {"phase": "Running", "podIP": f"10.0.0.{index}", "containerStatuses": [], **status},
    }


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKubectl:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return FakeKubectl(tmp_path)


def driver(*faults: str) -> KubernetesDriver:
    made = KubernetesDriver("tidelog:9094", SETTINGS, 60)
    assert made.refusals(faults) == {}
    made.start()
    return made


def test_kubernetes_finds_the_pods_of_its_selector_and_names_them_by_kind_and_number(kubectl: FakeKubectl) -> None:
    found = driver("kill")
    assert found.members == [CONTROLLER, NODE, OTHER]
    assert kubectl.calls[0][:2] == ["--namespace=log", "--context=test"]
    assert kubectl.of("get")[0] == ["pods", "--selector=app=tidelog", "--output=json"]
    assert not kubectl.of("debug")


def test_kubernetes_kills_a_pod_without_grace_and_stops_one_with_it(kubectl: FakeKubectl) -> None:
    found = driver("kill", "stop")
    found.kill(NODE)
    found.stop(OTHER)
    assert kubectl.of("delete") == [
        ["pod", "tidelog-node-101", "--force", "--grace-period=0", "--wait=false"],
        ["pod", "tidelog-node-102", "--wait=false"],
    ]
    kubectl.set_pods(pod("tidelog-node-101", "node", phase="Pending"))
    assert not found.is_running(NODE)
    assert not found.is_running(OTHER)


def test_kubernetes_pauses_and_slows_a_server_from_inside_and_lets_a_timer_undo_it(kubectl: FakeKubectl) -> None:
    found = driver("pause", "slow")
    found.pause(NODE)
    found.resume(NODE)
    found.slow(NODE, 0.2)
    found.unslow(NODE)
    pause, resume, slow, unslow = kubectl.scripts("tidelog-node-101")
    assert "kill -STOP $pids; (sleep 60; kill -CONT $pids)" in pause
    assert resume.endswith("kill -CONT $pids")
    assert "sleep 0.080; kill -CONT $pids; sleep 0.020" in slow
    assert "[ $n -lt 600 ]" in slow
    assert "rm -f /tmp/tidelog-chaos-slow" in unslow
    assert {call[1] for call in kubectl.of("exec")} == {"--container=node"}


def test_kubernetes_looks_for_servers_by_a_pattern_that_finds_no_shell(tmp_path: Path, kubectl: FakeKubectl) -> None:
    found = driver("pause")
    found.resume(NODE)
    [script] = kubectl.scripts("tidelog-node-101")
    sleeper = subprocess.Popen(["sh", "-c", "sleep 60; : tidelog-node"], start_new_session=True)
    try:
        look = script.removesuffix("kill -CONT $pids")
        listed = subprocess.run(["sh", "-c", f"{look} echo $pids"], capture_output=True, text=True, check=True)
        pids = listed.stdout.split()
        assert str(sleeper.pid) in pids
        commands = [Path(f"/proc/{pid}/cmdline") for pid in pids]
        assert not [c for c in commands if c.exists() and b"for p in /proc" in c.read_bytes()]
    finally:
        subprocess.run(["kill", "--", f"-{sleeper.pid}"], check=True)
        sleeper.wait()


def test_kubernetes_changes_the_network_by_a_container_of_its_own_that_heals_when_it_ends(kubectl: FakeKubectl) -> None:
    found = driver("partition", "delay")
    assert [call[0] for call in kubectl.of("debug")] == ["tidelog-quorum-1", "tidelog-node-101", "tidelog-node-102"]
    [call, *_] = kubectl.of("debug")
    assert {"--image=tools:1", "--profile=netadmin", "--attach=false"} <= set(call)
    subprocess.run(["sh", "-n", "-c", call[-1]], check=True)
    assert "trap heal TERM" in call[-1]
    assert "sleep 660" in call[-1]
    security = json.loads((kubectl.home / "custom").read_text())["securityContext"]
    assert security == {"runAsUser": 0, "runAsNonRoot": False, "capabilities": {"add": ["NET_ADMIN"]}}
    found.close()
    assert {tuple(call[3:]) for call in kubectl.of("exec")} == {("sh", "-c", "kill 1")}


def test_kubernetes_drops_what_comes_from_those_that_a_pod_is_cut_off_from(kubectl: FakeKubectl) -> None:
    found = driver("partition")
    found.cut(frozenset({(CONTROLLER, NODE), (OTHER, NODE)}))
    [cut] = kubectl.scripts("tidelog-node-101")
    assert "iptables -A TIDELOG-CHAOS -s 10.0.0.1 -j DROP" in cut
    assert "iptables -A TIDELOG-CHAOS -s 10.0.0.102 -j DROP" in cut
    assert "(sleep 60;" in cut
    assert not kubectl.scripts("tidelog-node-102"), "what they send arrives: the other direction is open"
    found.cut(frozenset())
    healed = kubectl.scripts("tidelog-node-101")[-1]
    assert "DROP" not in healed
    assert "iptables -F TIDELOG-CHAOS" in healed


def test_kubernetes_heals_a_partition_that_came_about_in_part(kubectl: FakeKubectl) -> None:
    found = driver("partition")
    found.start()
    kubectl.refuse(exec="the API server is busy")
    with pytest.raises(RuntimeError, match="busy"):
        found.cut(frozenset({(CONTROLLER, NODE)}))
    kubectl.refuse()
    found.cut(frozenset())
    assert "DROP" not in kubectl.scripts("tidelog-node-101")[-1]


def test_kubernetes_cuts_the_clients_off_and_leaves_the_members_together(kubectl: FakeKubectl) -> None:
    found = driver("partition")
    found.cut(frozenset([(CLIENTS, NODE), (NODE, CLIENTS)]))
    [cut] = kubectl.scripts("tidelog-node-101")
    rules = [part.strip() for part in cut.split(";") if " -A " in part and part.strip().startswith("iptables")]
    assert [shlex.split(rule)[-1] for rule in rules] == ["RETURN", "RETURN", "RETURN", "DROP", "DROP"]
    assert [rule.partition("--dport ")[2].split()[0] for rule in rules[-2:]] == ["9092", "9094"]


def test_kubernetes_delays_what_a_pod_sends(kubectl: FakeKubectl) -> None:
    found = driver("delay")
    found.delay(NODE, Delay(ms=100, jitter_ms=50, loss=0.01))
    found.undelay(NODE)
    delay, undelay = kubectl.scripts("tidelog-node-101")
    assert "tc qdisc replace dev eth0 root netem delay 100ms 50ms loss 1.00%" in delay
    assert "tc qdisc del dev eth0 root" in undelay


def test_kubernetes_starts_its_container_again_in_a_pod_that_came_back(kubectl: FakeKubectl) -> None:
    found = driver("delay")
    kubectl.set_pods(pod("tidelog-node-101", "node"))
    found.delay(NODE, Delay())
    assert [call[0] for call in kubectl.of("debug")].count("tidelog-node-101") == 2
    kubectl.set_pods()
    found.undelay(NODE)
    found.resume(NODE)
    assert len(kubectl.of("exec")) == 1, "a pod that is gone has taken its faults with it"


def test_kubernetes_refuses_what_it_cannot_do_with_the_reason(kubectl: FakeKubectl) -> None:
    made = KubernetesDriver("tidelog:9094", SETTINGS, 60)
    asked = ("kill", "pause", "partition", "clock", "disk-full", "disk-corrupt")
    assert set(made.refusals(asked)) == {"clock", "disk-full", "disk-corrupt"}
    alone = pod("tidelog-node-101", "node")
    alone["spec"]["shareProcessNamespace"] = False
    kubectl.set_pods(alone)
    kubectl.refuse(auth="no")
    refused = made.refusals(asked)
    assert "shareProcessNamespace: true" in refused["pause"]
    assert "pods/ephemeralcontainers" in refused["partition"]
    assert "kill" not in refused
    kubectl.set_pods()
    assert made.refusals(["kill"]) == {"kill": "no pod in log has app=tidelog"}
    kubectl.refuse(get="Unauthorized")
    assert made.refusals(["kill"]) == {"kill": "kubectl get: Error from server: Unauthorized"}


def test_kubernetes_without_kubectl_is_refused_before_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = RunSettings(output=tmp_path, driver="kubernetes", bootstrap_servers="tidelog:9094", faults=("kill",))
    with pytest.raises(ConfigError, match="kubectl is not installed"):
        make_driver(settings)


def test_kubernetes_says_why_its_container_does_not_run(kubectl: FakeKubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog_chaos.drivers.kubernetes._AGENT_START_S", 0.0)
    made = KubernetesDriver("tidelog:9094", SETTINGS, 60)
    made.refusals(["delay"])
    kubectl.refuse(debug="pods is forbidden: violates PodSecurity")
    with pytest.raises(RuntimeError, match="violates PodSecurity"):
        made.start()
