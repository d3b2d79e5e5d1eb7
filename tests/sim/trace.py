"""The history of a run as lines of text: for people who look for a cause, and to compare two runs word by word."""

from __future__ import annotations

from sim.world import World

from tidelog_quorum.raft.core.commands import Command


class Trace:
    """Collects a line for every command that a replica gives."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def follow(self, world: World) -> None:
        """Collect what happens in a world from now on."""

        def note(node_id: int, command: Command) -> None:
            self.lines.append(f"{world.now_us / 1000:9.3f} ms  {node_id}: {command}")

        world.on_command = note
