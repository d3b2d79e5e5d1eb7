"""The cordon of a node that is being drained: it gets no new replicas (KIP-1066)."""

from __future__ import annotations

from tidelog.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tidelog_cli.options.connection import Session
from tidelog_cli.output.printing import fail, settle
from tidelog_foundation.config.broker import CORDONED_LOG_DIRS
from tidelog_foundation.errors import ErrorCode


def cordon(session: Session, admin: AdminClient, node: int) -> None:
    """Keep new replicas away from a node, running or not."""
    _alter(session, admin, node, ConfigEntry(CORDONED_LOG_DIRS, "*", incremental_operation=AlterConfigOpType.SET))


def lift_cordon(session: Session, admin: AdminClient, node: int) -> None:
    """Permit new replicas on a node."""
    _alter(session, admin, node, ConfigEntry(CORDONED_LOG_DIRS, None, incremental_operation=AlterConfigOpType.DELETE))


def cancel_drain(session: Session, admin: AdminClient, node: int) -> int:
    """Permit new replicas on a node, cancel the reassignments that take replicas from it, and return their number."""
    lift_cordon(session, admin, node)
    ongoing = admin.list_partition_reassignments(request_timeout=session.timeout_s).result()
    leaving = {key: None for key, move in ongoing.items() if node in move.removing_replicas}
    if not leaving:
        return 0
    cancelled, errors = settle(admin.alter_partition_reassignments(leaving, request_timeout=session.timeout_s))
    # A reassignment can complete in between.
    fail(error for error in errors.values() if error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    return len(cancelled)


def _alter(session: Session, admin: AdminClient, node: int, entry: ConfigEntry) -> None:
    resource = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[entry])
    admin.incremental_alter_configs([resource], request_timeout=session.timeout_s)[resource].result()
