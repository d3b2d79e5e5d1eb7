"""``tidelog log replicas``: lists the replicas on a stopped node's disks, with the ends of their logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidelog_cli.output.printing import print_json, print_records
from tidelog_node.tools.replica_inventory import read_inventory
from tidelog_quorum.metadata.replica_inventory import inventory_document

_COLUMNS = ("topic", "partition", "topic_id", "leader_epoch", "log_end_offset")


def replicas(
    log_dirs: Annotated[
        list[Path],
        typer.Argument(metavar="DIR", exists=True, file_okay=False, help="All log directories of one stopped node."),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the document that tidelog quorum restore reads.")
    ] = False,
) -> None:
    """Show the replicas of a stopped node, each with the leader epoch of its last batch and its log end offset.

    Example: tidelog log replicas --json /var/lib/tidelog/data > node-1.json
    """
    document = inventory_document(read_inventory(log_dirs))
    if as_json:
        print_json(document)
    else:
        print_records(document["replicas"], _COLUMNS)
