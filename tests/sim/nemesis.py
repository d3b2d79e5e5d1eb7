"""Does the actions of a schedule to a simulated world.

Faults are kept within what the cluster is built to survive for good: a disk fails or is replaced by an empty one only
while, in every voter set that some replica goes by, a majority would be left. Everything else may hit all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from raft_properties import require
from random_numbers import mix
from sim.schedule import LEADER, Action
from sim.world import Noise, World

from tidelog_quorum.raft.core.commands import Command, Commit, CompactLog, InstallSnapshot, Persist, Send, StoreChunk
from tidelog_quorum.raft.core.events import AddVoterRequested, RemoveVoterRequested, TransferRequested
from tidelog_quorum.raft.core.messages import AppendResponse, TimeoutNow, VoteResponse
from tidelog_quorum.raft.core.voters import Voter, VoterSet

MAX_REPLICAS = 7
AMBUSHES: tuple[Callable[[Command], bool], ...] = (
    lambda command: isinstance(command, Persist),
    lambda command: (
        isinstance(command, Send) and isinstance(command.message, VoteResponse) and _is_vote(command.message)
    ),
    lambda command: isinstance(command, Send) and isinstance(command.message, AppendResponse),
    lambda command: isinstance(command, Commit),
    lambda command: isinstance(command, CompactLog),
    lambda command: isinstance(command, InstallSnapshot),
    lambda command: isinstance(command, StoreChunk),
    lambda command: isinstance(command, Send) and isinstance(command.message, TimeoutNow),
)
"""The commands right after which a replica may crash."""
AFTER_A_VOTE = 1


class Nemesis:
    """One method per name of an action."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._ambushed: dict[int, Action] = {}
        self.counts: dict[str, int] = {}
        self._requests: list[tuple[int, int, int]] = []
        self._reads: list[tuple[int, int, int]] = []
        for action in world.schedule.actions:
            world.at(action.at_ms * 1000, self.act, action)
        world.cluster.trace = self._watch

    def act(self, action: Action) -> None:
        """Do one action."""
        self.counts[action.name] = self.counts.get(action.name, 0) + 1
        getattr(self, f"_{action.name}")(action)

    def stop(self) -> None:
        """Do nothing any more."""
        self._ambushed.clear()
        self.world.doomed.clear()

    def check_answers(self) -> None:
        """Every request and every read has come to an end, unless the process it was put to has."""
        nodes, around = self.world.cluster.nodes, self.world.around
        for node_id, request_id, life in self._requests:
            answered = request_id in nodes[node_id].answers or around[node_id].life != life
            require(answered, "RequestAnswered", f"request {request_id} to {node_id}")
        for node_id, request_id, life in self._reads:
            answered = request_id in nodes[node_id].reads or around[node_id].life != life
            require(answered, "ReadAnswered", f"read {request_id} at {node_id}")

    def can_lose(self, node_id: int) -> bool:
        """Return whether every voter set in use has a majority without this replica."""
        return all(self.has_majority(voters, without=(node_id,)) for voters in self.sets_in_use())

    def has_majority(self, voters: VoterSet, without: Iterable[int] = ()) -> bool:
        """Return whether enough of these voters are where others find them, with the disks that have their votes."""
        lost = set(without)
        there = [
            v
            for v in voters
            if v.voter_id not in lost and self.is_itself(v.voter_id, v.directory_id) and self.is_at_its_address(v)
        ]
        return len(there) > len(voters) // 2

    def is_at_its_address(self, known: Voter) -> bool:
        """Return whether a voter listens where a set says."""
        node = self.world.cluster.nodes.get(known.voter_id)
        used = {other.listener for other in self.world.cluster.nodes.values()}
        return node is not None and all(known.endpoints.address(x) == node.endpoints.address(x) for x in used)

    def is_itself(self, node_id: int, directory_id: bytes) -> bool:
        """Return whether a voter has the disk that it had when it got its vote, and the disk works."""
        node, around = self.world.cluster.nodes.get(node_id), self.world.around.get(node_id)
        if node is None or around is None or around.has_failed:
            return False
        return directory_id == node.disk.directory_id if directory_id else not around.wipes

    def sets_in_use(self) -> list[VoterSet]:
        """Return the voter sets that replicas go by now, and the latest committed one."""
        cluster = self.world.cluster
        return [*(raft.voters.current for _, raft in cluster.running()), cluster.checker.latest_voters]

    def _propose(self, action: Action) -> None:
        node_id = self.world.pick(action.target)
        if node_id is None or self.world.cluster.nodes[node_id].raft is None:
            return
        if self.world.is_paused(node_id):
            self.world.postpone(node_id, self._propose, replace(action, target=self._index_of(node_id)))
            return
        self.world.set_clock(node_id)
        for i in range(action.amount):
            self.world.cluster.offer(node_id, b"%d.%d" % (action.number, i))
        self.world.settle(node_id)

    def _read(self, action: Action) -> None:
        node_id = self.world.pick(action.target)
        if node_id is None or self.world.cluster.nodes[node_id].raft is None:
            return
        if self.world.is_paused(node_id):
            self.world.postpone(node_id, self._read, replace(action, target=self._index_of(node_id)))
            return
        self.world.set_clock(node_id)
        request_id = self.world.cluster.read(node_id)
        self._reads.append((node_id, request_id, self.world.around[node_id].life))
        self.world.settle(node_id)

    def _index_of(self, node_id: int) -> int:
        return list(self.world.cluster.nodes).index(node_id)

    def _crash(self, action: Action) -> None:
        node_id = self.world.pick(action.target)
        if node_id is not None:
            self.world.crash(node_id, action.amount, action.span_ms)

    def _power(self, action: Action) -> None:
        """All replicas lose power at once; each has got another number of its writes onto the disk."""
        for node_id in list(self.world.cluster.nodes):
            keep = mix(action.extra, node_id)
            self.world.crash(node_id, keep % 4, action.span_ms + (keep >> 8) % 40)

    def _ambush(self, action: Action) -> None:
        """Crash a replica right after it next does something, before the disk has done it too."""
        node_id = self._running(action)
        if node_id is not None:
            self._ambushed[node_id] = action

    def _watch(self, node_id: int, command: Command) -> None:
        if self.world.on_command is not None:
            self.world.on_command(node_id, command)
        if not self._ambushed:
            return
        action = self._ambushed.get(node_id)
        if action is None:
            return
        if AMBUSHES[action.extra](command):
            del self._ambushed[node_id]
            self.world.doomed[node_id] = (action.amount, action.span_ms)

    def _pause(self, action: Action) -> None:
        node_id = self._running(action)
        if node_id is not None:
            self.world.pause(node_id, self._end_us(action))

    def _cut(self, action: Action) -> None:
        """One link goes quiet in one direction, or in both."""
        a = self.world.pick(action.target)
        if a is None:
            return
        ids = list(self.world.cluster.nodes)
        b = ids[(ids.index(a) + action.amount) % len(ids)]
        self._cut_way(a, b, action)
        if action.extra:
            self._cut_way(b, a, action)

    def _isolate(self, action: Action) -> None:
        """One replica hears nobody (1), is heard by nobody (2), neither (0), or has one other left (3)."""
        node_id = self.world.pick(action.target)
        if node_id is None:
            return
        others = [other for other in self.world.cluster.nodes if other != node_id]
        if action.amount == 3 and others:
            del others[mix(action.number) % len(others)]
        for other in others:
            if action.amount != 2:
                self._cut_way(other, node_id, action)
            if action.amount != 1:
                self._cut_way(node_id, other, action)

    def _orphan(self, action: Action) -> None:
        """A leader takes proposals and a change of the voters (``extra``), and is alone with them from then on."""
        node_id = self.world.leader()
        if node_id is None or not self._takes_events(node_id):
            return
        at_leader = replace(action, target=LEADER)
        self._propose(at_leader)
        if action.extra == 1:
            self._remove_voter(replace(action, amount=0))
        elif action.extra == 2:
            self._add_voter(replace(action, amount=0))
        self._isolate(replace(at_leader, target=self._index_of(node_id), amount=0))

    def _split(self, action: Action) -> None:
        """The bits of a number say who is on which side."""
        ids = list(self.world.cluster.nodes)
        for a in ids:
            for b in ids:
                if (action.amount >> a) & 1 != (action.amount >> b) & 1:
                    self._cut_way(a, b, action)

    def _noise(self, action: Action) -> None:
        """Messages, of all or of one replica, are lost, late or doubled."""
        loss, slow, double = action.amount & 255, action.amount >> 8 & 255, action.amount >> 16
        self.world.noises = [n for n in self.world.noises if n.until_us > self.world.now_us]
        replica = action.extra if action.extra <= len(self.world.cluster.nodes) else 0
        self.world.noises.append(Noise(self._end_us(action), replica, loss, slow, double, action.target * 1000))

    def _replay(self, action: Action) -> None:
        """Messages of any age come in once more; proxies have kept them for minutes."""
        history = self.world.history
        for i in range(action.extra):
            if history:
                self.world.deliver(history[mix(action.amount, i) % len(history)])

    def _stall(self, action: Action) -> None:
        node_id = self.world.pick(action.target)
        if node_id is not None:
            around = self.world.around[node_id]
            around.stalled_until_us = max(around.stalled_until_us, self._end_us(action))

    def _fail_disk(self, action: Action) -> None:
        """The disk fails: the process ends and does not come back."""
        node_id = self._running(action)
        if node_id is not None and self.can_lose(node_id):
            self.world.around[node_id].has_failed = True
            self.world.crash(node_id, action.amount, 0)

    def _wipe(self, action: Action) -> None:
        """Somebody replaces the disk by an empty one and starts the replica again."""
        node_id = self._running(action)
        if node_id is not None and self.can_lose(node_id) and self._is_known_by_directory(node_id):
            self.world.crash(node_id, 0, action.span_ms)
            self.world.wipe(node_id)

    def _move(self, action: Action) -> None:
        """A replica is started again at another address, while the others are a majority that can write it down."""
        node_id = self._running(action)
        known = [voters.get(node_id) for voters in self.sets_in_use()] if node_id is not None else []
        if node_id is not None and self.can_lose(node_id) and all(v is None or v.directory_id for v in known):
            self.world.crash(node_id, action.amount, action.span_ms)
            self.world.cluster.move(node_id)

    def _listen(self, action: Action) -> None:
        """A replica is started again with the next step to a new listener, once the logs have those of the others."""
        node_id = self._running(action)
        listeners = None if node_id is None else self.world.cluster.next_listeners(node_id)
        if node_id is None or listeners is None:
            return
        used = {listeners[1], *(node.listener for node in self.world.cluster.nodes.values())}
        if all(voter.endpoints.address(x) for voters in self.sets_in_use() for voter in voters for x in used):
            self.world.crash(node_id, action.amount, action.span_ms)
            self.world.cluster.listen(node_id, *listeners)

    def _clock(self, action: Action) -> None:
        node_id = self.world.pick(action.target)
        assert node_id is not None
        self.world.around[node_id].offset_ms += action.amount
        if self.world.cluster.nodes[node_id].raft is not None and not self.world.is_paused(node_id):
            self.world.set_clock(node_id)
            self.world.settle(node_id)

    def _stampede(self, action: Action) -> None:
        """All clocks jump past an election timeout at once; who votes then crashes (``extra``) and is back at once."""
        after_a_vote = replace(action, amount=0, extra=AFTER_A_VOTE)
        for node_id, around in self.world.around.items():
            around.offset_ms += action.amount
            if self._takes_events(node_id):
                if action.extra:
                    self._ambushed[node_id] = after_a_vote
                self.world.set_clock(node_id)
                self.world.settle(node_id)

    def _snapshot(self, action: Action) -> None:
        node_id = self._running(action)
        if node_id is not None:
            self.world.take_snapshot(node_id, action.span_ms)

    def _corrupt(self, action: Action) -> None:
        """A bit flips of the next chunk of a snapshot that comes in."""
        node_id = self.world.pick(action.target)
        assert node_id is not None
        self.world.cluster.nodes[node_id].disk.damage_next_chunk()

    def _forget_file(self, action: Action) -> None:
        """An old snapshot that may still be on its way to somebody is removed."""
        node_id = self._running(action)
        if node_id is not None:
            disk = self.world.cluster.nodes[node_id].disk
            newest = max((s.last_index for s in disk.files), default=0)
            named = [disk.snapshot, *(write.snapshot for write in disk.pending if isinstance(write, CompactLog))]
            for snapshot in [s for s in disk.files if s not in named and s.last_index < newest]:
                del disk.files[snapshot]

    def _add_observer(self, _action: Action) -> None:
        if len(self.world.cluster.nodes) < MAX_REPLICAS:
            self.world.add_observer()

    def _add_voter(self, action: Action) -> None:
        node_id = self._asked(action)
        if node_id is None:
            return
        raft = self.world.cluster.nodes[node_id].raft
        assert raft is not None
        others = [other for other, _ in self.world.cluster.running() if other not in raft.voters.current]
        if others:
            self.request_voter(node_id, others[action.target % len(others)], action.span_ms)

    def request_voter(self, node_id: int, new_id: int, timeout_ms: int) -> int:
        """Ask a replica to give another a vote; return the request's id."""
        request_id = self._next_request(node_id)
        node = self.world.cluster.nodes[new_id]
        new = Voter(new_id, node.endpoints, node.disk.directory_id)
        self.world.step(node_id, AddVoterRequested(request_id, new, timeout_ms))
        return request_id

    def _remove_voter(self, action: Action) -> None:
        node_id = self._asked(action)
        if node_id is None:
            return
        raft = self.world.cluster.nodes[node_id].raft
        assert raft is not None
        ids = raft.voters.current.ids
        gone = node_id if action.target < 0 else ids[action.target % len(ids)] if ids else None
        if gone is not None and gone in raft.voters.current and self.has_majority(raft.voters.current.without(gone)):
            self.request_removal(node_id, gone)

    def request_removal(self, node_id: int, gone: int) -> int:
        """Ask a replica to take another's vote; return the request's id."""
        request_id = self._next_request(node_id)
        raft = self.world.cluster.nodes[node_id].raft
        assert raft is not None
        old = raft.voters.current.get(gone)
        self.world.step(node_id, RemoveVoterRequested(request_id, gone, old.directory_id if old else b""))
        return request_id

    def _transfer(self, action: Action) -> None:
        node_id = self._asked(action)
        if node_id is None:
            return
        raft = self.world.cluster.nodes[node_id].raft
        assert raft is not None
        ids = raft.voters.current.ids
        to = None if action.target == 7 or not ids else ids[action.target % len(ids)]
        self.world.step(node_id, TransferRequested(self._next_request(node_id), to, action.span_ms))

    def _next_request(self, node_id: int) -> int:
        request_id = self.world.cluster.next_request_id()
        self._requests.append((node_id, request_id, self.world.around[node_id].life))
        return request_id

    def _asked(self, action: Action) -> int | None:
        """The leader, or (``amount``) somebody else, who must refuse."""
        node_id = self.world.pick(action.target) if action.amount else self.world.leader()
        return None if node_id is None or not self._takes_events(node_id) else node_id

    def _running(self, action: Action) -> int | None:
        node_id = self.world.pick(action.target)
        return node_id if node_id is not None and self._takes_events(node_id) else None

    def _takes_events(self, node_id: int) -> bool:
        return self.world.cluster.nodes[node_id].raft is not None and not self.world.is_paused(node_id)

    def _is_known_by_directory(self, node_id: int) -> bool:
        """Return whether all others can distinguish the replica from one with an empty disk and the same id.

        They can if the first voters were configured with their directory ids. Otherwise every other disk must have the
        entry with the leader's list of directory ids, and the replicas that know only the configuration must not be a
        majority of its voters: they would accept each other as the old voters.
        """
        cluster, around = self.world.cluster, self.world.around
        if self.world.schedule.known_directories or node_id not in cluster.checker.ever_voters:
            return True
        if len(cluster.configured) < 2:
            return False
        index = cluster.checker.all_known_since(node_id)
        if index is None or any(around[other].wipes for other in cluster.nodes if other in cluster.configured):
            return False
        term = cluster.committed[index - 1].term
        return all(
            node.disk.holds(index, term) for other, node in cluster.nodes.items() if not around[other].has_failed
        )

    def _cut_way(self, a: int, b: int, action: Action) -> None:
        cuts = self.world.cuts
        cuts[(a, b)] = max(cuts.get((a, b), 0), self._end_us(action))

    def _end_us(self, action: Action) -> int:
        return self.world.now_us + action.span_ms * 1000


def _is_vote(response: VoteResponse) -> bool:
    return response.granted and not response.pre_vote
