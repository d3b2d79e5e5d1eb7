"""What can happen to the processes of a cluster: killed, paused, killed again while they come back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from acknowledged import Load, wait_for

from tidelog.testing import LocalCluster
from tidelog.testing.process import ProcessHandle


class Faults:
    """Does one thing at a time to a cluster under load; :meth:`heal` undoes it.

    Each fault returns what it did. It may do so in several steps, with the load going on between them; its last blow
    falls right before it returns.
    """

    def __init__(self, cluster: LocalCluster, load: Load, partitions: int, dice: random.Random) -> None:
        self._cluster = cluster
        self._load = load
        self._partitions = partitions
        self._dice = dice
        self._down: set[str] = set()
        self._pauses: list[threading.Timer] = []

    @property
    def all(self) -> list[Callable[[], str]]:
        """Every fault."""
        return [
            self.kill_leader,
            self.kill_everything,
            self.kill_leader_ahead_of_followers,
            self.kill_node,
            self.kill_leading_controller,
            self.kill_leader_and_leading_controller,
            self.stop_node,
            self.pause_leader,
            self.pause_leading_controller,
            self.start_node_while_another_is_down,
            self.kill_node_during_catch_up,
        ]

    def kill_leader(self) -> str:
        """SIGKILL the node that leads one of the partitions."""
        leader = self._leader()
        self._kill(leader)
        return f"kill {leader.name}, a leader"

    def kill_node(self) -> str:
        """SIGKILL any node."""
        node = self._any_node()
        self._kill(node)
        return f"kill {node.name}"

    def kill_leading_controller(self) -> str:
        """SIGKILL the leader of the quorum."""
        controller = self._leading_controller()
        self._kill(controller)
        return f"kill {controller.name}, leading"

    def kill_leader_and_leading_controller(self) -> str:
        """SIGKILL a node whose failure the leader of the quorum can no longer notice."""
        controller, leader = self._leading_controller(), self._leader()
        self._kill(controller, leader)
        return f"kill {controller.name}, leading, and {leader.name}, a leader"

    def kill_everything(self) -> str:
        """SIGKILL every process, start them again in any order."""
        processes = self._processes()
        self._kill(*processes)
        self._dice.shuffle(processes)
        self._start(*processes)
        return "kill all processes, start them"

    def kill_leader_ahead_of_followers(self) -> str:
        """A leader dies with records that nobody else has; it must give them up, and no reader may have seen them."""
        leader = self._leader()
        followers = [node for node in self._cluster.nodes.values() if node is not leader]
        for follower in followers:
            follower.pause()
        time.sleep(self._dice.uniform(0.3, 1.2))
        self._kill(leader)
        for follower in followers:
            follower.resume()
        self._start(leader)
        return f"pause the others, kill {leader.name}, go on with all"

    def stop_node(self) -> str:
        """A controlled stop."""
        node = self._any_node()
        assert node.stop() == 0, f"{node.name} ended with an error:\n{node.log_tail()}"
        self._down.add(node.name)
        return f"stop {node.name}"

    def pause_leader(self) -> str:
        """SIGSTOP a node that leads: it wakes up in another epoch, or in the same."""
        return self._pause(self._leader())

    def pause_leading_controller(self) -> str:
        """SIGSTOP the leader of the quorum."""
        return self._pause(self._leading_controller())

    def start_node_while_another_is_down(self) -> str:
        """Two of three replicas fail one after the other; the first comes back alone and has missed records."""
        first = self._any_node()
        self._kill(first)
        self._load.wait_for_progress(self._dice.randint(1, 2_000))
        second = self._dice.choice([node for node in self._cluster.nodes.values() if node is not first])
        self._kill(second)
        self._start(first)
        return f"kill {first.name}, kill {second.name}, start {first.name}"

    def kill_node_during_catch_up(self) -> str:
        """A node dies again while it fetches what it missed."""
        node = self._any_node()
        self._kill(node)
        self._load.wait_for_progress(self._dice.randint(1_000, 5_000))
        size = self._log_bytes(node)
        self._start(node)
        wait_for(lambda: self._log_bytes(node) > size, f"{node.name} to catch up")
        time.sleep(self._dice.uniform(0, 0.1))
        self._kill(node)
        return f"kill {node.name}, again as it catches up"

    def heal(self) -> None:
        """Let every process run; fails when one has ended that nobody ended."""
        for timer in self._pauses:
            timer.join()
        self._pauses.clear()
        for process in self._processes():
            ended = not process.is_running and process.name not in self._down
            assert not ended, f"{process.name} ended by itself ({process.wait()}):\n{process.log_tail()}"
        down = [process for process in self._processes() if process.name in self._down]
        self._dice.shuffle(down)
        self._start(*down)

    def _processes(self) -> list[ProcessHandle]:
        return [*self._cluster.controllers.values(), *self._cluster.nodes.values()]

    def _any_node(self) -> ProcessHandle:
        return self._dice.choice(list(self._cluster.nodes.values()))

    def _leader(self) -> ProcessHandle:
        partition = self._dice.randrange(self._partitions)
        leader = self._cluster.leader(self._load.topic, partition)
        return self._any_node() if leader is None else self._cluster.nodes[leader]

    def _leading_controller(self) -> ProcessHandle:
        wait_for(lambda: self._cluster.controller_leader() is not None, "a leader of the quorum")
        leader = self._cluster.controller_leader()
        return self._cluster.controllers[leader or 1]

    def _kill(self, *processes: ProcessHandle) -> None:
        for process in processes:
            process.kill()
            self._down.add(process.name)

    def _start(self, *processes: ProcessHandle) -> None:
        for process in processes:
            process.start()
            self._down.discard(process.name)

    def _pause(self, process: ProcessHandle) -> str:
        pause_s = self._dice.uniform(1, 4)
        process.pause()
        timer = threading.Timer(pause_s, process.resume)
        timer.start()
        self._pauses.append(timer)
        return f"pause {process.name}, leading, for {pause_s:.1f} s"

    def _log_bytes(self, node: ProcessHandle) -> int:
        folders = [Path(node.directory, "data", f"{self._load.topic}-{p}") for p in range(self._partitions)]
        return sum(path.stat().st_size for folder in folders for path in folder.glob("*.log"))
