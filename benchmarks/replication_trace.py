"""A storage node that records its appends, replication and commits: ``python -m benchmarks.replication_trace``.

It takes a module and its arguments, the last of which is the node's properties file; the notes are written next to that
file when the node has stopped. The times are of the monotonic clock, which all processes of a machine share. A note
costs about a microsecond.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TRACE_FILE = "trace.json"


@dataclass(slots=True)
class NodeTrace:
    """The notes of one node in order. Each begins with the partition's name, for example ``orders-3``.

    ``appended``: (.., first offset, begin, end) of an append as the leader; ``copied``: (.., end offset of the log,
    begin, end) of an append as a follower; ``committed``: (.., high watermark, time). Times are in seconds.
    """

    appended: list[tuple[str, int, float, float]] = field(default_factory=list)
    copied: list[tuple[str, int, float, float]] = field(default_factory=list)
    committed: list[tuple[str, int, float]] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write all notes."""
        path.write_text(json.dumps({"appended": self.appended, "copied": self.copied, "committed": self.committed}))

    @classmethod
    def read(cls, path: Path) -> NodeTrace:
        """Read the notes of a node."""
        document = json.loads(path.read_text())
        return cls(**{name: [tuple(note) for note in notes] for name, notes in document.items()})


def install(trace: NodeTrace) -> None:
    """Make the partitions of this process record notes."""
    from tidelog_node.partitions import Partition

    append, replicate, step = Partition.append, Partition.replicate, Partition.step

    def traced_append(self: Partition, *arguments: Any, **named: Any) -> Any:
        begin = time.monotonic()
        info = append(self, *arguments, **named)
        trace.appended.append((str(self), info.first_offset, begin, time.monotonic()))
        return info

    def traced_replicate(self: Partition, *arguments: Any, **named: Any) -> None:
        begin = time.monotonic()
        replicate(self, *arguments, **named)
        trace.copied.append((str(self), self.log.log_end_offset, begin, time.monotonic()))

    def traced_step(self: Partition, event: Any) -> None:
        before = self.high_watermark
        step(self, event)
        if self.high_watermark > before and self.state.leader is not None:
            trace.committed.append((str(self), self.high_watermark, time.monotonic()))

    for name, traced in (("append", traced_append), ("replicate", traced_replicate), ("step", traced_step)):
        setattr(Partition, name, traced)


def main() -> None:
    """Run the module as ``python -m`` would, and write the notes when it has ended."""
    module, *arguments = sys.argv[1:]
    trace = NodeTrace()
    install(trace)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        trace.write(Path(arguments[-1]).parent / TRACE_FILE)


if __name__ == "__main__":
    main()
