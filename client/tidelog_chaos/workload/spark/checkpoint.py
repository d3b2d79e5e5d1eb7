"""The position of a query, from its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

from tidelog_chaos.workload.keys import key_of


def committed_batch(checkpoint: Path) -> tuple[int, dict[str, int]]:
    """Return the last batch that Spark knows to be committed, with its end in each partition by ``topic-0``.

    The batch is -1 before the first one.
    """
    done = [int(path.name) for path in _files(checkpoint / "commits")]
    if not done:
        return -1, {}
    # Lines: a version, metadata, the offsets of the only source.
    text = (checkpoint / "offsets" / str(max(done))).read_text()
    topics = json.loads(text.splitlines()[2])
    return max(done), {
        key_of(topic, int(partition)): end
        for topic, ends in topics.items()
        # Other keys belong to the source, and no topic has such a name.
        if not topic.startswith("@")
        for partition, end in ends.items()
    }


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
