"""A script of messages: an expand of the ISR that reaches the controllers after a later copy of it was refused.

The drawn faults of the network do not get there: a message that arrives when its caller has given up is not handled.

1. A follower falls behind, leaves the ISR and catches up. The leader's proposals to take it back are lost, but for the
   first, which is late.
2. The follower is fenced, so that a copy of the proposal is refused. It is unfenced, and cannot reach its leader.
3. The late copy arrives. The leader hears nothing from the controllers, and goes on with its own ISR.
4. The leader is killed, and whoever is in the controllers' ISR leads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from request_values import code_of
from sim.cluster.cluster import Cluster
from sim.cluster.controller_calls import ControllerCalls
from sim.cluster.node import NodeProcess
from sim.cluster.world import OnAnswer

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.requests.replicas import AlterPartitionRequest, AlterPartitionResponse

_NEVER_US = 1 << 60
_STEP_US = 1_000
_ON_ITS_OWN_MS = 250
"""The leader's session lasts longer."""
_DOWN_MS = 1_000


class LateExpand:
    """Plays the script with the first partition of a cluster; ``is_over`` says that it came to its end."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._topic, self._index = cluster.keys[0]
        self._leader = cluster.nodes[self._partition.leader]
        [follower] = set(self._partition.replicas) - {self._leader.number}
        self._follower = BrokerId(follower)
        self._late: AlterPartitionRequest | None = None
        self._is_refused = False
        self.is_over = False
        self._leader.calls = _Calls(self._leader, self)
        self._play(self._scenes())

    def is_lost(self, request: AlterPartitionRequest) -> bool:
        """Return whether a proposal is lost; the first expand is the one that is late."""
        [topic] = request.topics
        [partition] = topic.partitions
        if len(partition.new_isr) == 1 or self._is_fenced:
            return False
        if self._late is None:
            self._late = request
        return True

    def note(self, response: Any) -> None:
        """Take in what the controllers answered to a proposal."""
        if isinstance(response, AlterPartitionResponse):
            codes = [code_of(partition.error) for topic in response.topics for partition in topic.partitions]
            self._is_refused = self._is_refused or codes == [ErrorCode.INELIGIBLE_REPLICA]

    def _scenes(self) -> Iterator[bool]:
        """Yield whether the script can go on; what lies between two scenes happens at once."""
        leader, controllers = self._leader.number, self._cluster.controllers
        self._cut(self._follower, [leader])
        yield from self._until(lambda: set(self._partition.isr) == {leader})
        self._join(self._follower, [leader])
        yield from self._until(lambda: self._late is not None)
        self._cut(self._follower, controllers)
        yield from self._until(lambda: self._is_refused)
        self._cut(self._follower, [leader])
        self._join(self._follower, controllers)
        yield from self._until(lambda: not self._is_fenced)
        self._cut(leader, controllers)
        self._deliver()
        begun_ms = self._world.now_ms
        yield from self._until(lambda: self._world.now_ms >= begun_ms + _ON_ITS_OWN_MS)
        self._leader.kill()
        again_us = self._world.now_us + _DOWN_MS * 1000
        self._world.at(again_us, self._leader.start_again, self._leader.life)
        self._join(self._follower, [leader])
        self._join(leader, controllers)
        self.is_over = True

    @staticmethod
    def _until(condition: Any) -> Iterator[bool]:
        while not condition():
            yield False

    def _play(self, scenes: Iterator[bool]) -> None:
        if next(scenes, None) is not None:
            self._world.at(self._world.now_us + _STEP_US, self._play, scenes)

    @property
    def _partition(self) -> Any:
        return self._cluster.checker.metadata.latest.partition(self._topic, self._index)

    @property
    def _is_fenced(self) -> bool:
        return self._cluster.checker.metadata.latest.brokers[self._follower].fenced

    def _deliver(self) -> None:
        active = self._cluster.quorum.leader_id()
        assert active is not None, "no controller leads"
        controller: Any = self._cluster.quorum.controllers[active]
        controller.submit(("handle_alter_partition", self._late), lambda _: None)

    def _cut(self, number: int, others: list[int]) -> None:
        for other in others:
            self._world.cut(number, other, _NEVER_US)
            self._world.cut(other, number, _NEVER_US)

    def _join(self, number: int, others: list[int]) -> None:
        for other in others:
            self._world.cuts.pop((number, other), None)
            self._world.cuts.pop((other, number), None)


class _Calls(ControllerCalls):
    """The leader's calls to the controllers, of which some are lost."""

    def __init__(self, node: NodeProcess, script: LateExpand) -> None:
        super().__init__(node, node.controllers, node.number % len(node.controllers))
        self._script = script

    def ask(
        self, handler: str, request: Any, then: OnAnswer, timeout_ms: int, *attempt_ms: int, repeats: bool = True
    ) -> None:
        if handler != "handle_alter_partition":
            super().ask(handler, request, then, timeout_ms, *attempt_ms, repeats=repeats)
        elif self._script.is_lost(request):
            lost = error_for(ErrorCode.REQUEST_TIMED_OUT, "no controller answered")
            self._caller.after(timeout_ms, then, lost)
        else:
            super().ask(handler, request, lambda r: (self._script.note(r), then(r)), timeout_ms, repeats=repeats)
