"""Makes a cluster what its resource says: applies its objects, restarts outdated pods, and changes its size.

Each call observes the cluster, takes at most one step that others must wait for, and returns the status. A restart of
the operator continues where the cluster is.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog_foundation.errors import TidelogError
from tidelog_operator import external, rolling, scaling
from tidelog_operator.certificates import KeyPair, missing_names
from tidelog_operator.cluster_client import ClusterClient
from tidelog_operator.conditions import Outcome, Refusal
from tidelog_operator.connections import Connections
from tidelog_operator.kubernetes import Kubernetes, Object
from tidelog_operator.manifests import (
    COMPONENT,
    INITIAL_CONTROLLERS,
    MANAGED_BY,
    MANAGER,
    Sources,
    desired_objects,
    keystore,
    own,
    pod_labels,
    process_id,
)
from tidelog_operator.metrics import OperatorMetrics
from tidelog_operator.resources import CONTROLLER, FIRST_ID, NODE, ClusterSpec, parse_cluster
from tidelog_operator.settings import addresses, check_replication

_SOON_S = 2.0
_ROLES = (CONTROLLER, NODE)


@dataclass(frozen=True, slots=True)
class _External:
    """The Services for clients outside: their names, those of the nodes without an address, and the status' fields.

    ``since`` are the times since which nodes have their addresses, by id.
    """

    names: frozenset[str] = frozenset()
    pending: tuple[int, ...] = ()
    since: Mapping[int, str] = field(default_factory=dict)
    bootstrap: Object | None = None


@dataclass(frozen=True, slots=True)
class _Observed:
    """A cluster's objects: those that were applied, the StatefulSets as they are, and the pods."""

    spec: ClusterSpec
    objects: list[Object]
    sets: dict[str, Object]
    pods: list[rolling.Pod]
    mounted: frozenset[str]
    external: _External

    def replicas(self, role: str) -> int:
        count: int = self.sets[role]["spec"]["replicas"]
        return count

    def of_role(self, role: str) -> list[rolling.Pod]:
        return [pod for pod in self.pods if pod.role == role]


class ClusterReconciler:
    """Reconciles resources of the kind ``Tidelog``. ``image`` is that of clusters that name none.

    Nodes that read their rack from the labels of their machine use the service account ``rack_account``.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        connections: Connections,
        sources: Sources,
        image: str,
        metrics: OperatorMetrics,
        rack_account: str | None = None,
    ) -> None:
        self._metrics = metrics
        self._rack_account = rack_account
        self._kubernetes = kubernetes
        self._connections = connections
        self._sources = sources
        self._image = image

    async def reconcile(self, resource: Object) -> Outcome:
        """Bring the cluster one step closer to its resource.

        Raises:
            Refusal: the resource asks for something that cannot be.
        """
        spec = parse_cluster(resource)
        check_replication(spec)
        client = await self._connections.of_spec(spec)
        observed = await self._apply(spec, resource["metadata"]["uid"])
        draining = tuple((resource.get("status", {}).get("nodes") or {}).get("draining") or ())
        try:
            outcome = await self._roll(observed, client) or await self._scale(observed, client, draining)
            return outcome or await self._completed(observed, client, draining)
        except TidelogError as error:
            # A connection that began while the first pods started may lead nowhere for good.
            await self._connections.forget(spec.name)
            text = f"the cluster does not answer as expected: {error.code.name}: {error.message}"
            return _unready(observed, "ClusterError", text)

    async def _apply(self, spec: ClusterSpec, uid: str) -> _Observed:
        """Apply the objects, with the StatefulSets at their current sizes, and observe the pods."""
        existing = {role: await self._kubernetes.get("StatefulSet", spec.stateful_set(role)) for role in _ROLES}
        replicas = {role: s["spec"]["replicas"] if s else spec.pool(role).replicas for role, s in existing.items()}
        quorum = existing[CONTROLLER]
        initial = spec.controllers.replicas
        if quorum is not None:
            annotations = quorum["metadata"].get("annotations") or {}
            initial = int(annotations.get(INITIAL_CONTROLLERS, replicas[CONTROLLER]))
        keystores = await self._keystores(spec, uid)
        exposed = await self._expose(spec, uid, replicas[NODE])
        objects = desired_objects(
            spec,
            self._sources,
            owner_uid=uid,
            image=spec.image or self._image,
            replicas=replicas,
            initial_controllers=initial,
            keystores=keystores,
            rack_account=self._rack_account,
        )
        applied = [await self._kubernetes.apply(each) for each in objects]
        sets = {each["metadata"]["labels"][COMPONENT]: each for each in applied if each["kind"] == "StatefulSet"}
        found = await self._kubernetes.list("Pod", pod_labels(spec))
        mounted = (v["configMap"]["name"] for pod in found for v in pod["spec"]["volumes"] if "configMap" in v)
        pods = [
            _pod(each, sets, exposed.since) for each in found if each["metadata"]["labels"].get(COMPONENT) in _ROLES
        ]
        return _Observed(spec, objects, sets, pods, frozenset(mounted), exposed)

    async def _keystores(self, spec: ClusterSpec, uid: str) -> dict[str, str]:
        """Return the Secrets that pods of a secured cluster mount, by role.

        Raises:
            Refusal: a Secret is missing, or the controllers' certificate does not have all of their names.
        """
        if spec.security is None:
            return {}
        names = {}
        for role, secret in ((CONTROLLER, spec.security.controller_secret), (NODE, spec.security.node_secret)):
            pair = await self._connections.key_pair(secret)
            if role == CONTROLLER:
                _check_names(spec, secret, pair)
            names[role] = secret
            if not pair.is_combined:
                made = keystore(spec, role, pair)
                own(made, spec, uid)
                await self._kubernetes.apply(made)
                names[role] = made["metadata"]["name"]
        return names

    async def _expose(self, spec: ClusterSpec, uid: str, replicas: int) -> _External:
        """Apply the Services for clients outside, and the ConfigMap with the addresses that they got.

        Raises:
            Refusal: a node that exists, or that the cluster begins with, has no address yet. Without it, its pod would
                not start.
        """
        if spec.external is None:
            return _External()
        ids = range(FIRST_ID[NODE], FIRST_ID[NODE] + max(replicas, spec.nodes.replicas))
        manifests = external.services(spec, spec.external, ids, pod_labels(spec, NODE))
        for each in manifests:
            own(each, spec, uid)
        bootstrap, *services = [await self._kubernetes.apply(each) for each in manifests]
        before = await self._kubernetes.get("ConfigMap", external.config_map_name(spec))
        found = external.node_addresses(spec.external, dict(zip(ids, services, strict=True)))
        entries = {**external.last_known(spec.external, before, ids), **found}
        pending = external.without_address(spec.external, ids, entries)
        missing = [number for number in pending if number < FIRST_ID[NODE] + replicas]
        if missing:
            raise Refusal("ExternalPending", f"the Services of nodes {_listed(missing)} have no address yet")
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        addresses = external.config_map(spec, entries, before, now, pod_labels(spec, NODE))
        own(addresses, spec, uid)
        await self._kubernetes.apply(addresses)
        names = frozenset(each["metadata"]["name"] for each in (*manifests, addresses))
        return _External(names, tuple(pending), external.since(addresses), bootstrap)

    async def _roll(self, observed: _Observed, client: ClusterClient) -> Outcome | None:
        """Take the next step of a rolling restart, and return None if there is none."""
        for stateful_set in observed.sets.values():
            if stateful_set.get("status", {}).get("observedGeneration", 0) < stateful_set["metadata"]["generation"]:
                return _unready(observed, "Reconciling", "the StatefulSets are being updated")
        staying = [pod for pod in observed.pods if pod.id < _end(observed.spec, pod.role)]
        missing = _missing(observed)
        outdated = sorted(pod.name for pod in staying if not pod.is_current)
        leader = None
        if outdated and any(pod.is_ready for pod in observed.of_role(CONTROLLER)):
            leader = await _leader(client)
        step = rolling.next_step(staying, missing, leader)
        reason = "Rolling" if outdated else "PodsNotReady"
        match step:
            case rolling.Complete():
                return None
            case rolling.WaitFor(text):
                return _unready(observed, reason, text)
            case rolling.Replace(pods):
                for pod in pods:
                    await self._kubernetes.delete("Pod", pod.name, pod.uid)
                    self._metrics.restarted(pod.role)
                return _unready(observed, reason, f"replaced {', '.join(p.name for p in pods)}, which did not run")
            case rolling.AskThenRestart(pod):
                return _unready(observed, reason, await self._restart(pod, client))

    async def _restart(self, pod: rolling.Pod, client: ClusterClient) -> str:
        obstacles = await asyncio.to_thread(client.stop_obstacles, pod.id, is_controller=pod.role == CONTROLLER)
        if obstacles:
            return f"{pod.name} is not safe to stop: {', '.join(obstacles)}"
        if not await self._kubernetes.evict(pod.name, pod.uid):
            return f"the disruption budget does not permit to restart {pod.name} now"
        self._metrics.restarted(pod.role)
        return f"restarting {pod.name}"

    async def _scale(self, observed: _Observed, client: ClusterClient, draining: tuple[int, ...]) -> Outcome | None:
        """Take the next step of a change of size, and return None if there is none."""
        spec = observed.spec
        step = await self._controller_step(observed, client)
        if not isinstance(step, scaling.Settled):
            return await self._act(observed, client, step, draining)
        if observed.external.pending:
            text = f"the Services of nodes {_listed(observed.external.pending)} have no address yet"
            return _unready(observed, "ExternalPending", text, draining)
        leaving = scaling.leaving_ids(spec.nodes.replicas, observed.replicas(NODE))
        pods = [pod.id for pod in observed.of_role(NODE)]
        state = await asyncio.to_thread(client.nodes_state, observed.replicas(NODE), leaving, pods, draining)
        step = scaling.next_node_step(spec.nodes.replicas, state)
        return None if isinstance(step, scaling.Settled) else await self._act(observed, client, step, draining)

    async def _controller_step(self, observed: _Observed, client: ClusterClient) -> scaling.Step:
        wanted, replicas = observed.spec.controllers.replicas, observed.replicas(CONTROLLER)
        quorum = await asyncio.to_thread(client.quorum)
        are_ready = all(pod.is_ready for pod in observed.of_role(CONTROLLER)) and not _missing(observed)
        return scaling.next_controller_step(wanted, replicas, quorum.voters, quorum.observers, are_ready=are_ready)

    async def _act(
        self, observed: _Observed, client: ClusterClient, step: scaling.Step, draining: tuple[int, ...]
    ) -> Outcome:
        text, spec = "", observed.spec
        match step:
            case scaling.SetReplicas(role, count):
                await self._set_replicas(observed, role, count)
                text = f"{spec.stateful_set(role)} gets {count} pods"
            case scaling.Cordon(ids):
                draining = tuple(sorted({*draining, *ids}))
                await asyncio.to_thread(client.cordon, ids)
                text = f"nodes {_listed(ids)} get no new replicas"
            case scaling.LiftCordon(ids):
                await asyncio.to_thread(client.lift_cordon, ids)
                draining = tuple(i for i in draining if i not in ids)
                text = f"nodes {_listed(ids)} get replicas again"
            case scaling.Drain(ids):
                text = f"moving all replicas away from nodes {_listed(ids)}: "
                text += await asyncio.to_thread(client.drain, ids)
            case scaling.Unregister(ids):
                await asyncio.to_thread(client.unregister, ids)
                draining = tuple(i for i in draining if i not in ids)
                text = f"unregistered nodes {_listed(ids)}"
            case scaling.AddVoter(number):
                service = spec.stateful_set(CONTROLLER)
                await asyncio.to_thread(client.add_voter, number, f"{service}-{number}.{service}")
                text = f"controller {number} has a vote"
            case scaling.RemoveVoter(number):
                await asyncio.to_thread(client.remove_voter, number)
                text = f"controller {number} has no vote any more"
            case scaling.Refuse(message):
                raise Refusal("ScalingRefused", f"{spec.nodes.replicas} nodes are too few: {message}")
            case scaling.Settled():
                raise AssertionError("nothing is left to do")
        return _unready(observed, "Scaling", text, draining)

    async def _set_replicas(self, observed: _Observed, role: str, count: int) -> None:
        name = observed.spec.stateful_set(role)
        (manifest,) = (o for o in observed.objects if o["kind"] == "StatefulSet" and o["metadata"]["name"] == name)
        await self._kubernetes.apply({**manifest, "spec": {**manifest["spec"], "replicas": count}})

    async def _completed(self, observed: _Observed, client: ClusterClient, draining: tuple[int, ...]) -> Outcome:
        """Delete the ConfigMaps and Services that nothing uses any more, and report the cluster as ready."""
        wanted = {each["metadata"]["name"] for each in observed.objects} | observed.mounted | observed.external.names
        labels = {**pod_labels(observed.spec), MANAGED_BY: MANAGER}
        for kind, selector in (("ConfigMap", labels), ("Service", {**labels, **external.MARK})):
            for each in await self._kubernetes.list(kind, selector):
                metadata = each["metadata"]
                if metadata["name"] not in wanted:
                    await self._kubernetes.delete(kind, metadata["name"], metadata["uid"])
        cluster_id = await asyncio.to_thread(client.cluster_id)
        fields = {**_fields(observed, draining), "clusterId": cluster_id}
        return Outcome(True, "Ready", "all pods are ready and as wanted", fields)


def _check_names(spec: ClusterSpec, secret: str, pair: KeyPair) -> None:
    hosts = [address.rpartition(":")[0] for address in addresses(spec, spec.controllers.replicas)]
    try:
        missing = missing_names(pair, hosts)
    except ValueError as error:
        raise Refusal(
            "InvalidCertificate", f"the certificate in the Secret {secret} cannot be read: {error}"
        ) from error
    if missing:
        text = f"the certificate in the Secret {secret} is not for {', '.join(missing)}"
        raise Refusal("InvalidCertificate", text)


async def _leader(client: ClusterClient) -> int | None:
    try:
        return await asyncio.to_thread(client.leader_id)
    except TidelogError:
        # The order of restarts is not worth a failure; whether one is safe is asked again.
        return None


def _pod(resource: Object, sets: Mapping[str, Object], addressed: Mapping[int, str]) -> rolling.Pod:
    """Return a pod. One that is older than its address for clients outside advertises another one."""
    metadata, status = resource["metadata"], resource.get("status", {})
    role = metadata["labels"][COMPONENT]
    revision = sets[role].get("status", {}).get("updateRevision")
    is_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ()))
    number = process_id(metadata["name"])
    has_address = role != NODE or metadata["creationTimestamp"] >= addressed.get(number, "")
    return rolling.Pod(
        metadata["name"],
        metadata["uid"],
        role,
        number,
        is_ready=is_ready,
        is_running=any("running" in c.get("state", {}) for c in status.get("containerStatuses", ())),
        is_stopping="deletionTimestamp" in metadata,
        is_current=has_address and metadata["labels"].get("controller-revision-hash") == revision,
        machine=status.get("hostIP"),
    )


def _missing(observed: _Observed) -> list[str]:
    """Return the names of pods that stay and do not exist yet."""
    present = {pod.name for pod in observed.pods}
    names = []
    for role in _ROLES:
        first = FIRST_ID[role]
        count = min(observed.replicas(role), observed.spec.pool(role).replicas)
        names += [f"{observed.spec.stateful_set(role)}-{i}" for i in range(first, first + count)]
    return [each for each in names if each not in present]


def _end(spec: ClusterSpec, role: str) -> int:
    return FIRST_ID[role] + spec.pool(role).replicas


def _unready(observed: _Observed, reason: str, message: str, draining: tuple[int, ...] | None = None) -> Outcome:
    return Outcome(False, reason, message, _fields(observed, draining), _SOON_S)


def _fields(observed: _Observed, draining: tuple[int, ...] | None) -> dict[str, Any]:
    spec = observed.spec
    fields: dict[str, Any] = {
        "bootstrapServers": spec.bootstrap_servers,
        "kafkaBootstrapServers": spec.kafka_bootstrap_servers,
    }
    for role, key in ((CONTROLLER, "controllers"), (NODE, "nodes")):
        replicas = observed.replicas(role)
        ready = sum(pod.is_ready for pod in observed.of_role(role))
        fields[key] = {"replicas": replicas, "ready": f"{ready}/{replicas}"}
    fields |= dict.fromkeys(("externalBootstrapServers", "externalKafkaBootstrapServers"))
    if spec.external is not None and observed.external.bootstrap is not None:
        machines = [pod.machine for pod in observed.of_role(NODE) if pod.machine]
        fields |= external.bootstrap_servers(spec.external, observed.external.bootstrap, machines)
    if draining is not None:
        fields["nodes"]["draining"] = list(draining)
    return fields


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ids)))
