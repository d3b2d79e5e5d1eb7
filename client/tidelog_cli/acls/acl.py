"""``tidelog acl``: create, list, delete."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Annotated, Any

import typer

from tidelog.admin import AclBinding, AclBindingFilter, AclOperation
from tidelog_cli.options.completion import complete_topic
from tidelog_cli.options.connection import Session, Yes, connected
from tidelog_cli.output.printing import command_group, confirm, error_document, fail, print_warning, settle

app = command_group("Create, list and delete access control lists (ACLs).")

_COLUMNS = ("principal", "host", "resource", "name", "pattern", "operation", "permission")
_CLUSTER_NAME = "kafka-cluster"
_Grant = tuple[str, str | None, str | None]
"""A permission, a principal and a host; None matches all."""

_Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="NAME",
        help="A topic. May be repeated, as all resources.",
        autocompletion=complete_topic,
    ),
]
_Groups = Annotated[list[str] | None, typer.Option("--group", "-g", metavar="NAME", help="A group.")]
_TransactionalIds = Annotated[
    list[str] | None, typer.Option("--transactional-id", metavar="NAME", help="A transactional id.")
]
_Tokens = Annotated[list[str] | None, typer.Option("--delegation-token", metavar="NAME", help="A delegation token.")]
_Users = Annotated[
    list[str] | None, typer.Option("--user", metavar="PRINCIPAL", help="A user, as a resource of delegation tokens.")
]
_Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
_Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation", metavar="OPERATION,...", help="read, write, create, describe, all and so on. May be repeated."
    ),
]
_Pattern = Annotated[
    str,
    typer.Option(
        "--pattern", metavar="literal|prefixed", help="literal: the name itself, or *. prefixed: what begins with it."
    ),
]
_PatternFilter = Annotated[
    str,
    typer.Option(
        "--pattern",
        metavar="any|match|literal|prefixed",
        help="match: the ACLs that apply to the resource, however they name it.",
    ),
]
_Allowed = Annotated[
    list[str] | None,
    typer.Option("--allow-principal", metavar="PRINCIPAL", help="Whom to allow: User:alice or alice; * is everybody."),
]
_Denied = Annotated[list[str] | None, typer.Option("--deny-principal", metavar="PRINCIPAL", help="Whom to deny it.")]
_AllowedHosts = Annotated[
    list[str] | None, typer.Option("--allow-host", metavar="ADDRESS", help="The hosts to allow it from. Default: all.")
]
_DeniedHosts = Annotated[
    list[str] | None, typer.Option("--deny-host", metavar="ADDRESS", help="The hosts to deny it from. Default: all.")
]


_Principals = Annotated[
    list[str] | None,
    typer.Option("--principal", metavar="PRINCIPAL", help="Whom an ACL allows or denies: User:alice or alice."),
]
_NOT_CREATED = ("UNKNOWN", "ANY")
_NOT_FILTERED = ("UNKNOWN",)


@app.command()
@connected
def create(
    session: Session,
    operations: _Operations = None,
    topics: _Topics = None,
    groups: _Groups = None,
    transactional_ids: _TransactionalIds = None,
    tokens: _Tokens = None,
    users: _Users = None,
    cluster: _Cluster = False,
    pattern: _Pattern = "literal",
    allowed: _Allowed = None,
    denied: _Denied = None,
    allowed_hosts: _AllowedHosts = None,
    denied_hosts: _DeniedHosts = None,
) -> None:
    """Create an ACL for each operation, resource, principal and host (Kafka: kafka-acls.sh --add).

    \b
    Examples:
      tidelog acl create --allow-principal alice --operation read --topic orders
      tidelog acl create --deny-principal bob --operation all --group billing
    """
    resources = _resources(topics, groups, transactional_ids, tokens, users, cluster=cluster)
    wanted_operations = _split(operations, _NOT_CREATED)
    for option, given in (("--operation", wanted_operations), ("--topic", resources)):
        if not given:
            more = ", or another resource," if option == "--topic" else ""
            raise typer.BadParameter(f"{option}{more} is required")
    grants = [
        *product(["ALLOW"], map(_principal, allowed or ()), allowed_hosts or ["*"]),
        *product(["DENY"], map(_principal, denied or ()), denied_hosts or ["*"]),
    ]
    if not grants:
        raise typer.BadParameter("--allow-principal or --deny-principal is required")
    wanted = [
        _made(AclBinding, kind, name, pattern, principal, host, operation, permission)
        for (kind, name), operation, (permission, principal, host) in product(resources, wanted_operations, grants)
    ]
    _warn_of_useless(resources, pattern, [*(allowed_hosts or ()), *(denied_hosts or ())])
    with session.admin() as admin:
        created, errors = settle(admin.create_acls(wanted, request_timeout=session.timeout_s))
    documents: list[dict[str, Any]] = [_record(acl) | {"created": True} for acl in created]
    documents += [_record(acl) | {"created": False, "error": error_document(error)} for acl, error in errors.items()]
    session.done({"acls": documents}, *(f"created {_text(acl)}" for acl in created))
    fail(errors.values())


@app.command("list")
@connected
def list_acls(
    session: Session,
    operations: _Operations = None,
    topics: _Topics = None,
    groups: _Groups = None,
    transactional_ids: _TransactionalIds = None,
    tokens: _Tokens = None,
    users: _Users = None,
    cluster: _Cluster = False,
    pattern: _PatternFilter = "any",
    principals: _Principals = None,
    allowed: _Allowed = None,
    denied: _Denied = None,
    allowed_hosts: _AllowedHosts = None,
    denied_hosts: _DeniedHosts = None,
) -> None:
    """List the ACLs that match; without options, all (Kafka: kafka-acls.sh --list).

    \b
    Examples:
      tidelog acl list
      tidelog acl list --topic orders --pattern match
    """
    resources = _resources(topics, groups, transactional_ids, tokens, users, cluster=cluster)
    grants = _grants(principals, allowed, allowed_hosts, denied, denied_hosts)
    filters = _filters(resources, pattern, _split(operations, _NOT_FILTERED), grants)
    with session.admin() as admin:
        pending = [admin.describe_acls(each, request_timeout=session.timeout_s) for each in filters]
        found = sorted({acl for future in pending for acl in future.result()})
    session.show("acls", [_record(acl) for acl in found], _COLUMNS)


@app.command()
@connected
def delete(
    session: Session,
    operations: _Operations = None,
    topics: _Topics = None,
    groups: _Groups = None,
    transactional_ids: _TransactionalIds = None,
    tokens: _Tokens = None,
    users: _Users = None,
    cluster: _Cluster = False,
    pattern: _PatternFilter = "literal",
    principals: _Principals = None,
    allowed: _Allowed = None,
    denied: _Denied = None,
    allowed_hosts: _AllowedHosts = None,
    denied_hosts: _DeniedHosts = None,
    yes: Yes = False,
) -> None:
    """Delete the ACLs that match (Kafka: kafka-acls.sh --remove). At least one option must name them.

    Example: tidelog acl delete --allow-principal alice --topic orders --yes
    """
    resources = _resources(topics, groups, transactional_ids, tokens, users, cluster=cluster)
    if not any((resources, operations, principals, allowed, denied, allowed_hosts, denied_hosts)):
        raise typer.BadParameter("name the ACLs by a resource, an operation, a principal or a host")
    grants = _grants(principals, allowed, allowed_hosts, denied, denied_hosts)
    filters = _filters(resources, pattern, _split(operations, _NOT_FILTERED), grants)
    confirm("delete all ACLs that match", yes)
    with session.admin() as admin:
        found, errors = settle(admin.delete_acls(filters, request_timeout=session.timeout_s))
    deleted = sorted({acl for acls in found.values() for acl in acls})
    texts = [f"deleted {_text(acl)}" for acl in deleted] or ["no ACL matches"]
    session.done({"acls": [_record(acl) | {"deleted": True} for acl in deleted]}, *texts)
    fail(errors.values())


def _resources(
    topics: Sequence[str] | None,
    groups: Sequence[str] | None,
    transactional_ids: Sequence[str] | None,
    tokens: Sequence[str] | None,
    users: Sequence[str] | None,
    *,
    cluster: bool,
) -> list[tuple[str, str]]:
    """Return the types and names of resources."""
    named = {
        "TOPIC": topics,
        "GROUP": groups,
        "TRANSACTIONAL_ID": transactional_ids,
        "DELEGATION_TOKEN": tokens,
        "USER": [_principal(name) for name in users or ()],
        "BROKER": [_CLUSTER_NAME] if cluster else (),
    }
    return [(kind, name) for kind, names in named.items() for name in names or ()]


def _grants(
    principals: Sequence[str] | None,
    allowed: Sequence[str] | None,
    allowed_hosts: Sequence[str] | None,
    denied: Sequence[str] | None,
    denied_hosts: Sequence[str] | None,
) -> list[_Grant]:
    """Return the permissions, principals and hosts of filters."""
    grants: list[_Grant] = [("ANY", _principal(name), None) for name in principals or ()]
    if allowed or allowed_hosts:
        grants += product(["ALLOW"], _or_any(map(_principal, allowed or ())), _or_any(allowed_hosts or ()))
    if denied or denied_hosts:
        grants += product(["DENY"], _or_any(map(_principal, denied or ())), _or_any(denied_hosts or ()))
    return grants


def _filters(
    resources: Sequence[tuple[str, str]], pattern: str, operations: Sequence[str], grants: Sequence[_Grant]
) -> list[AclBindingFilter]:
    """Return one filter per combination; what is not given matches everything."""
    named: Sequence[tuple[str, str | None]] = resources or [("ANY", None)]
    return [
        _made(
            AclBindingFilter, kind, name, pattern if name is not None else "ANY", principal, host, operation, permission
        )
        for (kind, name), operation, (permission, principal, host) in product(
            named, operations or ["ANY"], grants or [("ANY", None, None)]
        )
    ]


def _or_any(names: Iterable[str]) -> list[str | None]:
    return list(names) or [None]


def _made(kind: type[Any], *parts: Any) -> Any:
    try:
        return kind(*parts)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _split(operations: Sequence[str] | None, excluded: Sequence[str]) -> list[str]:
    names = [name.strip() for text in operations or () for name in text.split(",") if name.strip()]
    found = [name.replace("-", "_").upper() for name in names]
    known = [operation.name for operation in AclOperation if operation.name not in excluded]
    for name, operation in zip(names, found, strict=True):
        if operation not in known:
            shown = ", ".join(known).lower()
            raise typer.BadParameter(f'the operation must be one of {shown}, not "{name}"', param_hint="--operation")
    return found


def _warn_of_useless(resources: Sequence[tuple[str, str]], pattern: str, hosts: Sequence[str]) -> None:
    """Warn of names and hosts that Kafka's rules accept, although they hardly mean what was meant."""
    for _, name in resources:
        if pattern.lower() == "literal" and name.endswith("*") and name != "*":
            print_warning(f"{name} is the name itself; for names that begin with {name[:-1]} pass --pattern prefixed")
    for host in hosts:
        if host != "*" and not _is_address(host):
            print_warning(f"the host {host} is not an IP address, and no client matches it")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _principal(name: str) -> str:
    return name if ":" in name else f"User:{name}"


def _record(acl: AclBinding) -> dict[str, Any]:
    kind = "CLUSTER" if acl.restype.name == "BROKER" else acl.restype.name
    return {
        "principal": acl.principal,
        "host": acl.host,
        "resource": kind,
        "name": acl.name,
        "pattern": acl.resource_pattern_type.name,
        "operation": acl.operation.name,
        "permission": acl.permission_type.name,
    }


def _text(acl: AclBinding) -> str:
    parts = _record(acl)
    return (
        f"{parts['permission']} {parts['operation']} on {parts['pattern']} {parts['resource']} {parts['name']} "
        f"to {parts['principal']} from {parts['host']}"
    )
