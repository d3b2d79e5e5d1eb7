"""``tidelog cluster health`` and ``tidelog cluster doctor``: what is wrong, what could be better, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import typer

from tidelog_cli.health.doctor_rules import doctor_findings
from tidelog_cli.health.facts import ClusterFacts
from tidelog_cli.health.finding import Finding, Severity, exit_code
from tidelog_cli.health.gathering import gather
from tidelog_cli.health.state_rules import health_findings
from tidelog_cli.options.connection import Session, connected
from tidelog_cli.output.printing import counted, error_document, error_text, print_error, print_json
from tidelog_foundation.errors import TidelogError

UNKNOWN: Final = 3
"""The exit code if the cluster could not be asked."""
_COLORS: Final = {Severity.CRITICAL: typer.colors.RED, Severity.WARNING: typer.colors.YELLOW}


@connected
def health(session: Session) -> None:
    """Show what is wrong with the cluster, and what to do.

    Exit with 0 if nothing is, 1 for warnings, 2 if clients are refused or records are in danger, and 3 if the cluster
    could not be asked.

    Example: tidelog cluster health
    """
    _report(session, health_findings, "healthy")


@connected
def doctor(session: Session) -> None:
    """Show what in the set-up of the cluster could cost availability or records.

    Looks at settings, replicas, racks, disks, clocks, versions and the limits of the operating system, and asks each
    process for what it alone knows.

    The exit codes are those of "tidelog cluster health".

    Example: tidelog cluster doctor
    """
    _report(session, doctor_findings, "nothing to improve", asks_processes=True)


def _report(
    session: Session, judge: Callable[[ClusterFacts], list[Finding]], praise: str, *, asks_processes: bool = False
) -> None:
    try:
        with session.admin() as admin:
            facts = gather(admin, session.timeout_s, asks_processes=asks_processes)
    except TidelogError as error:
        if session.as_json:
            print_json({"status": "unknown", "error": error_document(error), "findings": []})
        else:
            print_error(error_text(error))
        raise typer.Exit(UNKNOWN) from None
    findings = judge(facts)
    code = exit_code(findings)
    if session.as_json:
        status = Severity(code).name.lower() if code else "healthy"
        print_json({"cluster_id": facts.cluster_id, "status": status, "findings": list(map(_document, findings))})
    else:
        _print(facts, findings, praise)
    raise typer.Exit(code)


def _print(facts: ClusterFacts, findings: list[Finding], praise: str) -> None:
    voters = "no leader" if facts.voters is None else counted(len(facts.voters), "controller")
    parts = counted(len(facts.nodes), "node"), counted(len(facts.topics), "topic")
    size = ", ".join((voters, *parts, counted(len(facts.partitions), "partition")))
    typer.echo(f"cluster {facts.cluster_id}: {size}")
    for finding in findings:
        name = finding.severity.name.lower()
        typer.echo()
        typer.echo(
            f"{typer.style(name, fg=_COLORS.get(finding.severity), bold=True)}  {finding.subject}: {finding.text}"
        )
        typer.echo(f"  -> {finding.action}")
        typer.echo(f"     {finding.link}")
    if not findings:
        typer.secho(praise, fg=typer.colors.GREEN)


def _document(finding: Finding) -> dict[str, Any]:
    return {
        "severity": finding.severity.name.lower(),
        "object": finding.subject,
        "text": finding.text,
        "action": finding.action,
        "link": finding.link,
    }
