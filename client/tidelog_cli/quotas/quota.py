"""``tidelog quota``: set, list, describe, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tidelog.admin import (
    ClientQuotaAlteration,
    ClientQuotaAlterationOp,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from tidelog_cli.options.connection import Session, Yes, connected
from tidelog_cli.output.printing import command_group, confirm, fail, settle

app = command_group("Limit the rates of users, client ids and addresses (quotas).")

_COLUMNS = ("user", "client_id", "ip", "quota", "value")
_DEFAULT_NAME = "<default>"

_User = Annotated[str | None, typer.Option("--user", "-u", metavar="NAME", help="The user with this name.")]
_ClientId = Annotated[str | None, typer.Option("--client-id", "-c", metavar="ID", help="The clients with this id.")]
_Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="The connections from this address.")]
_DefaultUser = Annotated[bool, typer.Option("--default-user", help="Each user without a quota of its own.")]
_DefaultClientId = Annotated[
    bool, typer.Option("--default-client-id", help="Each client id without a quota of its own.")
]
_DefaultIp = Annotated[bool, typer.Option("--default-ip", help="Each address without a quota of its own.")]


@app.command("set")
@connected
def set_quotas(
    session: Session,
    quotas: Annotated[
        list[str],
        typer.Argument(
            metavar="QUOTA=VALUE",
            help="producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate; of an address "
            "connection_creation_rate.",
        ),
    ],
    user: _User = None,
    client_id: _ClientId = None,
    ip: _Ip = None,
    default_user: _DefaultUser = False,
    default_client_id: _DefaultClientId = False,
    default_ip: _DefaultIp = False,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Check the values and set nothing.")] = False,
) -> None:
    """Set quotas of a user, a client id, both, or an address (Kafka: kafka-configs.sh --alter --add-config).

    \b
    Examples:
      tidelog quota set --user alice producer_byte_rate=1048576
      tidelog quota set --default-user --client-id reports request_percentage=50
      tidelog quota set --default-ip connection_creation_rate=100
    """
    entity = _required_entity(user, client_id, ip, default_user, default_client_id, default_ip)
    ops = [_op(text) for text in quotas]
    _alter(session, entity, ops, validate_only=validate_only)
    text = ", ".join(f"{op.key}={op.value:g}" for op in ops)
    done = "would set" if validate_only else "set"
    session.done({"entity": _record(entity), "quotas": {op.key: op.value for op in ops}}, f"{done} {text}")


@app.command("list")
@connected
def list_quotas(session: Session) -> None:
    """List all quotas.

    Example: tidelog quota list
    """
    _show(session, ClientQuotaFilter.all())


@app.command()
@connected
def describe(
    session: Session,
    user: _User = None,
    client_id: _ClientId = None,
    ip: _Ip = None,
    default_user: _DefaultUser = False,
    default_client_id: _DefaultClientId = False,
    default_ip: _DefaultIp = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Leave out the quotas of the entity together with others.")
    ] = False,
) -> None:
    """Describe the quotas of an entity, and of the entity together with others (Kafka: kafka-configs.sh --describe).

    \b
    Examples:
      tidelog quota describe --user alice
      tidelog quota describe --user alice --strict
    """
    entity = _required_entity(user, client_id, ip, default_user, default_client_id, default_ip)
    components = [
        ClientQuotaFilterComponent.of_default_entity(kind)
        if name is None
        else ClientQuotaFilterComponent.of_entity(kind, name)
        for kind, name in entity.entries.items()
    ]
    _show(session, ClientQuotaFilter(components, strict=strict))


@app.command()
@connected
def delete(
    session: Session,
    quotas: Annotated[
        list[str] | None, typer.Argument(metavar="[QUOTA]", help="The quotas to delete. Default: all.")
    ] = None,
    user: _User = None,
    client_id: _ClientId = None,
    ip: _Ip = None,
    default_user: _DefaultUser = False,
    default_client_id: _DefaultClientId = False,
    default_ip: _DefaultIp = False,
    yes: Yes = False,
) -> None:
    """Delete quotas of an entity (Kafka: kafka-configs.sh --alter --delete-config).

    Example: tidelog quota delete --user alice producer_byte_rate --yes
    """
    entity = _required_entity(user, client_id, ip, default_user, default_client_id, default_ip)
    confirm(f"delete {', '.join(quotas) if quotas else 'all quotas'} of {_text(entity)}", yes)
    present = _described(session, ClientQuotaFilter.all()).get(entity, {})
    keys = [key for key in present if not quotas or key in quotas]
    if keys:
        _alter(session, entity, [ClientQuotaAlterationOp(key, None) for key in keys])
    session.done(
        {"entity": _record(entity), "deleted": keys}, f"deleted {', '.join(keys)}" if keys else "no quota matches"
    )


def _required_entity(
    user: str | None,
    client_id: str | None,
    ip: str | None,
    default_user: bool,
    default_client_id: bool,
    default_ip: bool,
) -> ClientQuotaEntity:
    entries: dict[str, str | None] = {}
    parts = (("user", user, default_user), ("client-id", client_id, default_client_id), ("ip", ip, default_ip))
    for kind, name, is_default in parts:
        if name is not None and is_default:
            raise typer.BadParameter(f"--{kind} and --default-{kind} exclude each other")
        if name is not None or is_default:
            entries[kind] = name
    if not entries:
        raise typer.BadParameter("--user, --client-id, --ip or a default of one is required")
    return ClientQuotaEntity(entries)


def _op(text: str) -> ClientQuotaAlterationOp:
    key, separator, value = text.partition("=")
    if not separator:
        raise typer.BadParameter(f"{text!r}: expected QUOTA=VALUE")
    try:
        return ClientQuotaAlterationOp(key.strip(), float(value))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {value!r} is not a number") from error


def _alter(
    session: Session, entity: ClientQuotaEntity, ops: Sequence[ClientQuotaAlterationOp], *, validate_only: bool = False
) -> None:
    with session.admin() as admin:
        alteration = ClientQuotaAlteration(entity, ops)
        futures = admin.alter_client_quotas(
            [alteration], validate_only=validate_only, request_timeout=session.timeout_s
        )
        _, errors = settle(futures)
    fail(errors.values())


def _described(session: Session, wanted: ClientQuotaFilter) -> dict[ClientQuotaEntity, dict[str, float]]:
    with session.admin() as admin:
        return admin.describe_client_quotas(wanted, request_timeout=session.timeout_s).result()


def _show(session: Session, wanted: ClientQuotaFilter) -> None:
    rows = [
        _record(entity) | {"quota": key, "value": value}
        for entity, quotas in _described(session, wanted).items()
        for key, value in quotas.items()
    ]
    session.show("quotas", sorted(rows, key=lambda row: [str(row[name] or "") for name in _COLUMNS[:4]]), _COLUMNS)


def _record(entity: ClientQuotaEntity) -> dict[str, Any]:
    """Return the names of an entity; a default is <default>, a type that it does not have None."""
    names = {kind: _DEFAULT_NAME if name is None else name for kind, name in entity.entries.items()}
    return {"user": names.get("user"), "client_id": names.get("client-id"), "ip": names.get("ip")}


def _text(entity: ClientQuotaEntity) -> str:
    return " ".join(f"{kind} {_DEFAULT_NAME if name is None else name}" for kind, name in entity.entries.items())
