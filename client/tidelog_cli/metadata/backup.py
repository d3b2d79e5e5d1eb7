"""``tidelog quorum backup``: writes the cluster's metadata to a file, while the cluster runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog_cli.options.connection import Session, connected
from tidelog_cli.options.controllers import Controllers
from tidelog_cli.output.printing import UsageError
from tidelog_foundation.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from tidelog.admin import MetadataPart, QuorumAdmin
    from tidelog_quorum.tools.backup_file import Backup


@connected
def backup(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, readable by its owner alone.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    bootstrap_controller: Controllers = None,
) -> None:
    """Write a backup of the metadata log: topics, configurations, ACLs, credentials, quotas, features.

    It has every change that was acknowledged before the command began, read from the leading controller, but no
    records. Needs the right CLUSTER_ACTION on the cluster, because it contains the keys of users.

    Example: tidelog quorum backup /backup/metadata-2025-01-31.backup
    """
    if file.exists() and not force:
        raise UsageError(f"{file} exists. Choose another name, or pass --force.")
    with session.quorum_admin(bootstrap_controller) as admin:
        written = _write(admin, file, session.timeout_s)
    document = dataclasses.asdict(written) | {"file": str(file), "bytes": file.stat().st_size}
    text = f"wrote the metadata of cluster {written.cluster_id} up to offset {written.offset} to {file}"
    session.done(document, text)


def _write(admin: QuorumAdmin, file: Path, timeout_s: float) -> Backup:
    try:
        from tidelog_quorum.tools.backup_file import BackupWriter
    except ModuleNotFoundError as error:
        text = f"{error.name} is not installed: pip install 'tidelog[quorum]'"
        raise error_for(ErrorCode._STATE, text) from error
    cluster_id = admin.describe_metadata_quorum(request_timeout=timeout_s).cluster_id
    with BackupWriter(file, cluster_id) as writer:

        def take(part: MetadataPart) -> None:
            if part.begins_snapshot:
                writer.begin_snapshot()
            writer.add(
                part.offset, part.epoch, part.batch, is_continued=part.is_continued, is_snapshot=part.is_snapshot
            )

        end = admin.read_metadata(take, request_timeout=timeout_s)
        return writer.finish(end.offset, end.epoch)
