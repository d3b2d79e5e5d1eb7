"""Makes a topic what its resource says, and deletes it with its resource unless it is to be kept."""

from __future__ import annotations

import asyncio
from functools import partial

from tidelog_foundation.errors import TidelogError
from tidelog_operator.cluster_client import PASSING
from tidelog_operator.conditions import Outcome, Refusal
from tidelog_operator.connections import Connections
from tidelog_operator.kubernetes import Kubernetes, Object
from tidelog_operator.topic_client import change_topic, delete_topic, read_topic
from tidelog_operator.topics import next_change, parse_topic

_CHANGES = 10
"""More changes than a topic can need at a time: another program changes it as well."""


class TopicReconciler:
    """Reconciles resources of the kind ``TidelogTopic``."""

    def __init__(self, kubernetes: Kubernetes, connections: Connections) -> None:
        self._kubernetes = kubernetes
        self._connections = connections

    async def reconcile(self, resource: Object) -> Outcome:
        """Make the topic what its resource says.

        Raises:
            Refusal: the resource asks for something that cannot be.
            TidelogError: the cluster does not answer.
        """
        spec = parse_topic(resource)
        await self._refuse_second(resource, spec.cluster, spec.name)
        client = await self._connections.of_cluster(spec.cluster)
        for _ in range(_CHANGES):
            state = await self._connections.ask(spec.cluster, partial(read_topic, client.admin, spec.name))
            change = next_change(spec, state)
            if change is None:
                break
            await self._connections.ask(spec.cluster, partial(change_topic, client.admin, spec, change))
        if state is None or change is not None:
            return Outcome(False, "Changing", f"topic {spec.name} is changed by somebody else at the same time")
        fields = {
            "topicName": spec.name,
            "topicId": state.topic_id,
            "partitions": state.partitions,
            "replicas": state.replicas,
        }
        return Outcome(True, "Ready", f"topic {spec.name} is as wanted", fields)

    async def delete(self, resource: Object) -> bool:
        """Delete the topic of a deleted resource, and return whether its finalizer can go.

        A topic stays if the resource says so, if it was never this resource's, and if its cluster is being deleted.
        """
        try:
            spec = parse_topic(resource)
            is_unmade = not (resource.get("status") or {}).get("topicId")
            if spec.is_kept or is_unmade or not await self._connections.has_cluster(spec.cluster):
                return True
            client = await self._connections.of_cluster(spec.cluster)
            state = await asyncio.to_thread(read_topic, client.admin, spec.name)
            # A topic that somebody has created again under the same name has another id, and is not ours.
            if state is not None and state.topic_id == resource["status"]["topicId"]:
                await asyncio.to_thread(delete_topic, client.admin, spec.name)
        except Refusal:
            return True
        except TidelogError as error:
            if error.code in PASSING:
                return False
            raise
        return True

    async def _refuse_second(self, resource: Object, cluster: str, name: str) -> None:
        """Refuse a resource of a topic that an older resource has."""
        mine = resource["metadata"]
        for other in await self._kubernetes.list("TidelogTopic"):
            meta, spec = other["metadata"], other["spec"]
            is_same = (spec["cluster"], spec.get("topicName", meta["name"])) == (cluster, name)
            older = (meta["creationTimestamp"], meta["name"]) < (mine["creationTimestamp"], mine["name"])
            if is_same and older:
                raise Refusal("Duplicate", f"the resource {meta['name']} is about topic {name} already")
