"""Takes the next turn of a rebalance: makes a plan, begins moves of an approved one, or cancels them.

The plan is in a ConfigMap with the name of the resource and ``-plan``, so that what runs is what was approved.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from tidelog.message import TopicPartition
from tidelog_cli.balance.planner import Move
from tidelog_foundation.errors import TidelogError
from tidelog_operator.cluster_client import PASSING, ClusterClient
from tidelog_operator.conditions import Outcome, Refusal
from tidelog_operator.connections import Connections
from tidelog_operator.kubernetes import Kubernetes, Object
from tidelog_operator.manifests import MANAGED_BY, MANAGER
from tidelog_operator.rebalance_client import advance, cancel, elect, propose
from tidelog_operator.rebalances import (
    MAX_PLAN_BYTES,
    ORDER,
    Action,
    RebalanceSpec,
    State,
    next_action,
    parse_plan,
    parse_rebalance,
    plan_document,
)
from tidelog_operator.resources import owner_reference

_TURN_S = 2.0
_MOVES, _ELECTIONS = "moves", "elections"


class RebalanceReconciler:
    """Reconciles resources of the kind ``TidelogRebalance``."""

    def __init__(self, kubernetes: Kubernetes, connections: Connections) -> None:
        self._kubernetes = kubernetes
        self._connections = connections

    async def reconcile(self, resource: Object) -> Outcome:
        """Take the next turn.

        Raises:
            Refusal: the cluster does not exist.
            TidelogError: the cluster does not answer.
        """
        spec, status = parse_rebalance(resource), resource.get("status") or {}
        state = State(status.get("state", State.NEW.value))
        order = (resource["metadata"].get("annotations") or {}).get(ORDER)
        is_changed = status.get("plannedGeneration") not in (None, resource["metadata"]["generation"])
        action = next_action(state, order, is_changed=is_changed, approves_itself=spec.approves_itself)
        if action is Action.WAIT:
            return _same(status, state)
        client = await self._connections.of_cluster(spec.cluster)
        try:
            outcome = await self._act(action, resource, spec, client)
        except TidelogError as error:
            if error.code in PASSING:
                await self._connections.forget(spec.cluster)
                raise
            outcome = _in(State.NOT_READY, f"{error.code.name}: {error.message}", {"state": State.NOT_READY.value})
        if order is not None:
            await self._kubernetes.annotate("TidelogRebalance", resource["metadata"]["name"], {ORDER: None})
        return outcome

    async def _act(self, action: Action | str, resource: Object, spec: RebalanceSpec, client: ClusterClient) -> Outcome:
        if isinstance(action, str):
            status = resource.get("status") or {}
            return _same(status, State(status.get("state", State.NEW.value)), action)
        if action is Action.PLAN:
            return await self._plan(resource, spec, client)
        moves, elections = await self._stored(resource)
        if action is Action.CANCEL:
            count = await asyncio.to_thread(cancel, client.admin, moves)
            return _in(State.STOPPED, f"cancelled {count} moves; what has moved stays", {"remaining": 0})
        left = await asyncio.to_thread(advance, client.admin, moves, spec.moves_per_node)
        if left:
            return _in(State.REBALANCING, f"{left} of {len(moves)} moves are left", {"remaining": left})
        await asyncio.to_thread(elect, client.admin, elections)
        return _in(State.READY, f"{len(moves)} moves are done", {"remaining": 0})

    async def _plan(self, resource: Object, spec: RebalanceSpec, client: ClusterClient) -> Outcome:
        plan = await asyncio.to_thread(propose, client.admin, spec)
        elections = {*plan.elections, *(m.key for m in plan.moves if m.before[0] != m.after[0] or m.removing)}
        document = {
            _MOVES: json.dumps(plan_document(plan.moves)),
            _ELECTIONS: json.dumps([[key.topic, key.partition] for key in sorted(elections)]),
        }
        size = sum(map(len, document.values()))
        if size > MAX_PLAN_BYTES:
            text = f"the plan has {len(plan.moves)} moves, and {size} bytes of at most {MAX_PLAN_BYTES}: set maxBytes"
            raise Refusal("PlanTooLarge", text)
        await self._kubernetes.apply(_config_map(resource, document))
        generation = resource["metadata"]["generation"]
        summary = {"moves": len(plan.moves), "bytes": plan.bytes, "elections": len(plan.elections)}
        fields = {"plan": summary, "plannedGeneration": generation, "remaining": len(plan.moves)}
        if plan.is_empty:
            return _in(State.READY, "the cluster is in balance", fields)
        text = f"{len(plan.moves)} moves with {plan.bytes} bytes; the annotation {ORDER}=approve begins them"
        return _in(State.PROPOSAL_READY, text, fields)

    async def _stored(self, resource: Object) -> tuple[list[Move], list[TopicPartition]]:
        found = await self._kubernetes.get("ConfigMap", _plan_name(resource))
        if found is None:
            text = (
                f"the ConfigMap {_plan_name(resource)} with the plan is gone; the annotation {ORDER}=refresh plans anew"
            )
            raise Refusal("PlanNotFound", text)
        data = found["data"]
        elections = [TopicPartition(topic, partition) for topic, partition in json.loads(data[_ELECTIONS])]
        return parse_plan(json.loads(data[_MOVES])), elections


def _plan_name(resource: Object) -> str:
    return f"{resource['metadata']['name']}-plan"


def _config_map(resource: Object, data: Mapping[str, str]) -> Object:
    metadata = resource["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": _plan_name(resource),
            "labels": {MANAGED_BY: MANAGER},
            "ownerReferences": [owner_reference("TidelogRebalance", metadata["name"], metadata["uid"])],
        },
        "data": dict(data),
    }


def _in(state: State, message: str, fields: Mapping[str, Any]) -> Outcome:
    again_s = _TURN_S if state in (State.REBALANCING, State.PROPOSAL_READY) else 30.0
    return Outcome(state is State.READY, state.value, message, {**fields, "state": state.value}, again_s)


def _same(status: Mapping[str, Any], state: State, note: str = "") -> Outcome:
    old: str = next((c["message"] for c in status.get("conditions", ()) if c["type"] == "Ready"), "")
    return Outcome(state is State.READY, state.value, note or old, {"state": state.value})
