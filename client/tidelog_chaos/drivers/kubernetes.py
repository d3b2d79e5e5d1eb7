"""A cluster in Kubernetes, through ``kubectl``: deletes pods, suspends processes, drops and delays packets.

A kill deletes the pod without grace; its StatefulSet creates the next one. An ephemeral container in the pod changes
the network: it shares the pod's network namespace and has the capability. ``iptables`` drops packets from the members
that a pod is cut off from, ``tc`` delays those that it sends. A signal from inside suspends processes, which works if
pods share their process namespace: a server that is process 1 of a container cannot be suspended.

A timer in the pod undoes every change there, in case the runner cannot.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog_chaos.drivers.driver import CLIENTS, Cut, Delay, End, FaultDriver, Member

if TYPE_CHECKING:
    from tidelog_chaos.settings import KubernetesSettings


_NETWORK_FAULTS = frozenset({"partition", "delay"})
_SIGNAL_FAULTS = frozenset({"pause", "slow"})
_NEVER = {
    "credentials": "this driver does not know the users of the cluster",
    "certificates": "the certificates of the pods are in Secrets, which this driver does not change",
    "disk-full": "a volume may share its disk with others",
    "disk-corrupt": "the files of a pod that is down cannot be reached",
    "clock": "containers have the clock of their machine",
}
_AGENT_START_S = 60.0
_GRACE_S = 600
_UNDO_S = 60
"""The time after which a fault in a pod ends by itself."""
_CHAIN = "TIDELOG-CHAOS"
_CLIENT_PORTS = (9092, 9094)
"""The ports of Kafka clients and of Tidelog's own."""
_ROOT = {"securityContext": {"runAsUser": 0, "runAsNonRoot": False, "capabilities": {"add": ["NET_ADMIN"]}}}
# The brackets keep the pattern from matching the shell that searches for it.
_SERVERS = (
    'pids=""; for p in /proc/[0-9]*; do case "$(tr "\\0" " " < $p/cmdline 2>/dev/null)" in '
    '*tidelog[-_]node*|*tidelog[-_]quorum*) pids="$pids ${p#/proc/}";; esac; done; '
)
_SLOW_MARK = "/tmp/tidelog-chaos-slow"


class KubernetesDriver(FaultDriver):
    """The pods that match a selector in a namespace; the cluster exists already and stays."""

    def __init__(
        self,
        bootstrap_servers: str,
        settings: KubernetesSettings,
        duration_s: float,
        kafka_bootstrap_servers: str = "",
    ) -> None:
        super().__init__(bootstrap_servers, kafka_bootstrap_servers)
        self._settings = settings
        self._kubectl = Kubectl(settings.namespace, settings.context)
        self._agent = f"tidelog-chaos-{uuid.uuid4().hex[:6]}"
        self._agent_s = int(duration_s) + _GRACE_S
        self._members: list[Member] = []
        self._uses_network = False
        self._serial = itertools.count(1)
        self._cut: Cut = frozenset()

    @property
    def members(self) -> Sequence[Member]:
        """The pods, by the process in them."""
        return self._members

    def refusals(self, faults: Iterable[str]) -> Mapping[str, str]:
        """Refuse the faults that Kubernetes does not support, or not with these pods and these rights."""
        asked = list(faults)
        self._uses_network = bool(_NETWORK_FAULTS.intersection(asked))
        refused = {fault: _NEVER[fault] for fault in asked if fault in _NEVER}
        try:
            pods = self._pods()
        except RuntimeError as error:
            return dict.fromkeys(asked or ["none"], str(error))
        if not pods:
            reason = f"no pod in {self._settings.namespace} has {self._settings.selector}"
            return dict.fromkeys(asked or ["none"], reason)
        if self._uses_network and not self._may_debug():
            reason = "this user may not patch pods/ephemeralcontainers, through which the network is changed"
            refused |= dict.fromkeys(_NETWORK_FAULTS.intersection(asked), reason)
        if not all(pod.shares_processes for pod in pods.values()):
            reason = "a server is process 1 of its container: set shareProcessNamespace: true in the pods"
            refused |= dict.fromkeys(_SIGNAL_FAULTS.intersection(asked), reason)
        return refused

    def start(self) -> None:
        """Find the pods, and start the ephemeral containers if the run has network faults."""
        pods = self._pods()
        self._members = list(pods)
        if self._uses_network:
            for pod in pods.values():
                self._with_agent(pod)

    def close(self) -> None:
        """Heal the network and end the ephemeral containers, which cannot be removed from a pod's description."""
        for pod in self._pods().values():
            if self._agent in pod.running:
                self._kubectl.execute(pod, self._agent, "kill 1")

    def is_running(self, member: Member) -> bool:
        """Return whether the pod runs."""
        pod = self._pods().get(member)
        return pod is not None and pod.phase == "Running"

    def kill(self, member: Member) -> None:
        """Delete the pod without grace; its StatefulSet creates the next."""
        name = self._pod(member).name
        self._kubectl.run("delete", "pod", name, "--force", "--grace-period=0", "--wait=false")

    def stop(self, member: Member) -> None:
        """Delete the pod with its grace period; its StatefulSet creates the next."""
        self._kubectl.run("delete", "pod", self._pod(member).name, "--wait=false")

    def pause(self, member: Member) -> None:
        """Send SIGSTOP from inside the pod."""
        undo = f"(sleep {_UNDO_S}; kill -CONT $pids) >/dev/null 2>&1 &"
        self._in_server(member, f"{_SERVERS}kill -STOP $pids; {undo}")

    def resume(self, member: Member) -> None:
        """Send SIGCONT from inside the pod."""
        self._undo_in_server(member, f"{_SERVERS}kill -CONT $pids")

    def slow(self, member: Member, share: float) -> None:
        """Send SIGSTOP and SIGCONT from inside the pod, ten times a second."""
        stopped, running = f"{0.1 * (1 - share):.3f}", f"{0.1 * share:.3f}"
        cycle = f"kill -STOP $pids; sleep {stopped}; kill -CONT $pids; sleep {running}; n=$((n+1))"
        loop = f"(n=0; while [ -e {_SLOW_MARK} ] && [ $n -lt {_UNDO_S * 10} ]; do {cycle}; done) >/dev/null 2>&1 &"
        self._in_server(member, f"{_SERVERS}touch {_SLOW_MARK}; {loop}")

    def unslow(self, member: Member) -> None:
        """End :meth:`slow`."""
        self._undo_in_server(member, f"{_SERVERS}rm -f {_SLOW_MARK}; sleep 0.2; kill -CONT $pids")

    def cut(self, cut: Cut) -> None:
        """In each pod, drop the packets from the members that it is cut off from."""
        if cut == self._cut:
            return
        pods = self._pods()
        targets = {target for _, target in cut | self._cut if isinstance(target, Member)}
        # Until all is done, so that every change is undone even if the next command fails.
        self._cut |= cut
        for target in sorted(targets & pods.keys()):
            sources = sorted((source for source, to in cut if to == target), key=str)
            if sources or self._agent in pods[target].running:
                self._in_agent(pods[target], _drop_script(sources, pods, next(self._serial)))
        self._cut = cut

    def delay(self, member: Member, delay: Delay) -> None:
        """Delay and drop packets that the pod sends, with netem."""
        netem = f"netem delay {delay.ms:.0f}ms {delay.jitter_ms:.0f}ms loss {delay.loss * 100:.2f}%"
        undo = f"(sleep {_UNDO_S}; tc qdisc del dev eth0 root) >/dev/null 2>&1 &"
        self._in_agent(self._pod(member), f"tc qdisc replace dev eth0 root {netem}; {undo}")

    def undelay(self, member: Member) -> None:
        """End :meth:`delay`."""
        pod = self._pods().get(member)
        if pod is not None and self._agent in pod.running:
            self._in_agent(pod, "tc qdisc del dev eth0 root 2>/dev/null || true")

    def _pods(self) -> dict[Member, Pod]:
        return self._kubectl.pods(self._settings.selector)

    def _pod(self, member: Member) -> Pod:
        pods = self._pods()
        if member not in pods:
            raise RuntimeError(f"{member} has no pod now")
        return pods[member]

    def _may_debug(self) -> bool:
        try:
            return "yes" in self._kubectl.run("auth", "can-i", "patch", "pods", "--subresource=ephemeralcontainers")
        except RuntimeError:
            return False

    def _in_server(self, member: Member, script: str) -> None:
        pod = self._pod(member)
        self._kubectl.execute(pod, pod.container, script)

    def _undo_in_server(self, member: Member, script: str) -> None:
        """Run a script if the pod still exists; a deleted pod took the fault with it."""
        if self.is_running(member):
            self._in_server(member, script)

    def _in_agent(self, pod: Pod, script: str) -> None:
        self._kubectl.execute(self._with_agent(pod), self._agent, script)

    def _with_agent(self, pod: Pod) -> Pod:
        """Start the ephemeral container in a pod without it, as after a deletion, and wait for it."""
        if self._agent not in pod.running:
            with tempfile.NamedTemporaryFile("w", suffix=".json") as custom:
                custom.write(json.dumps(_ROOT))
                custom.flush()
                self._kubectl.run(
                    *("debug", pod.name, f"--image={self._settings.image}", f"--container={self._agent}"),
                    *("--profile=netadmin", f"--custom={custom.name}", "--attach=false", "--quiet"),
                    *("--", "sh", "-c", _agent_script(self._agent_s)),
                )
        deadline_s = time.monotonic() + _AGENT_START_S
        while self._agent not in pod.running:
            pod = self._pod(pod.member)
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"the container {self._agent} of {pod.name} does not run: {self._settings.image}?")
            time.sleep(0.2)
        return pod


def _agent_script(seconds: int) -> str:
    """Return the script of the ephemeral container: wait, and heal the pod's network at the end."""
    heal = f"tc qdisc del dev eth0 root 2>/dev/null; {_each_family(f'-F {_CHAIN} 2>/dev/null')}"
    chain = _each_family(f"-N {_CHAIN} 2>/dev/null") + "; " + _each_family(f"-I INPUT -j {_CHAIN} 2>/dev/null")
    return f"heal() {{ {heal}; exit 0; }}; trap heal TERM; {chain}; sleep {seconds} & wait; heal"


def _drop_script(sources: Sequence[End], pods: Mapping[Member, Pod], serial: int) -> str:
    """Return the script that makes a pod drop packets from these sources only."""
    flush = _each_family(f"-F {_CHAIN}")
    ips = [pods[source].ip for source in sources if isinstance(source, Member) and source in pods]
    rules = [_rule(ip, f"-s {ip} -j DROP") for ip in ips]
    if CLIENTS in sources:
        rules += [_rule(pod.ip, f"-s {pod.ip} -j RETURN") for pod in pods.values()]
        rules += [_each_family(f"-A {_CHAIN} -p tcp --dport {port} -j DROP") for port in _CLIENT_PORTS]
    mark = "/tmp/tidelog-chaos-cut"
    undo = f'(sleep {_UNDO_S}; [ "$(cat {mark})" = {serial} ] && {{ {flush}; }}) >/dev/null 2>&1 &'
    return "; ".join([f"echo {serial} > {mark}", flush, *rules, undo])


def _rule(ip: str, rule: str) -> str:
    return f"{'ip6tables' if ':' in ip else 'iptables'} -A {_CHAIN} {rule}"


def _each_family(rule: str) -> str:
    return f"iptables {rule}; ip6tables {rule}"


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
        """Run a command and return its output; raise RuntimeError with its error output.

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
        """Return the pods that match a selector; raise RuntimeError if one is of an unknown kind."""
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
