"""``tidelog user``: create, list, describe, set-password, delete. A user is a name with SCRAM credentials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
from tidelog_cli.options.connection import Session, Yes, connected
from tidelog_cli.output.printing import command_group, confirm, counted_names, fail, settle
from tidelog_cli.users.passwords import PasswordFile, read_password
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.sasl.scram_credentials import MAX_ITERATIONS, MIN_ITERATIONS

if TYPE_CHECKING:
    from tidelog.admin import AdminClient

app = command_group("Create, list and delete users, and set their passwords (SCRAM).")

_MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
_COLUMNS = ("user", "mechanism", "iterations")

_User = Annotated[str, typer.Argument(metavar="USER", help="The name of the user.")]
_Users = Annotated[list[str], typer.Argument(metavar="USER", help="The names of users.")]
_OfMechanisms = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism", metavar="SCRAM-SHA-256|SCRAM-SHA-512", help="Only this mechanism. May be repeated. Default: all."
    ),
]
_Iterations = Annotated[
    int,
    typer.Option(
        "--iterations", metavar="COUNT", min=MIN_ITERATIONS, max=MAX_ITERATIONS, help="The cost of guessing a password."
    ),
]


@app.command()
@connected
def create(
    session: Session,
    user: _User,
    mechanisms: Annotated[
        list[str] | None,
        typer.Option(
            "--mechanism",
            metavar="SCRAM-SHA-256|SCRAM-SHA-512",
            help="The mechanism of the user's logins. May be repeated. Default: SCRAM-SHA-512.",
        ),
    ] = None,
    password_file: PasswordFile = None,
    iterations: _Iterations = MIN_ITERATIONS,
) -> None:
    """Create a user (Kafka: kafka-configs.sh --alter).

    \b
    Examples:
      tidelog user create alice
      tidelog user create alice --mechanism SCRAM-SHA-256 --password-file pw
    """
    wanted = _members(mechanisms) or [ScramMechanism.SCRAM_SHA_512]
    with session.admin() as admin:
        if _existing(admin, session, user):
            text = f"user {user} exists; tidelog user set-password changes its password"
            raise error_for(ErrorCode.DUPLICATE_RESOURCE, text)
        _set(admin, session, user, wanted, read_password(user, password_file), iterations)
    session.done({"user": user, "mechanisms": [_name(each) for each in wanted]}, f"created user {user}")


@app.command("list")
@connected
def list_users(session: Session) -> None:
    """List all users with their mechanisms (Kafka: kafka-configs.sh --describe).

    Example: tidelog user list
    """
    with session.admin() as admin:
        found = admin.describe_user_scram_credentials(request_timeout=session.timeout_s).result()
    session.show("users", _records(found.values()), _COLUMNS)


@app.command()
@connected
def describe(session: Session, users: _Users) -> None:
    """Show the mechanisms of users.

    Example: tidelog user describe alice bob
    """
    with session.admin() as admin:
        futures = admin.describe_user_scram_credentials(list(dict.fromkeys(users)), request_timeout=session.timeout_s)
        found, errors = settle(futures)
    session.show("users", _records(found.values()), _COLUMNS)
    fail(errors.values())


@app.command("set-password")
@connected
def set_password(
    session: Session,
    user: _User,
    mechanisms: _OfMechanisms = None,
    password_file: PasswordFile = None,
    iterations: _Iterations = MIN_ITERATIONS,
) -> None:
    """Set a user's password for all its mechanisms (Kafka: kafka-configs.sh --alter).

    With --mechanism, the user gets the mechanism if it does not have it. Open connections stay open until they
    authenticate again.

    Example: tidelog user set-password alice
    """
    with session.admin() as admin:
        wanted = _members(mechanisms) or _required(admin, session, user)
        if mechanisms:
            _required(admin, session, user)
        _set(admin, session, user, wanted, read_password(user, password_file), iterations)
    session.done({"user": user, "mechanisms": [_name(each) for each in wanted]}, f"set the password of user {user}")


@app.command()
@connected
def delete(session: Session, users: _Users, mechanisms: _OfMechanisms = None, yes: Yes = False) -> None:
    """Delete users (Kafka: kafka-configs.sh --delete-config).

    Their ACLs stay. Open connections stay open until they authenticate again.

    Example: tidelog user delete alice --yes
    """
    wanted = _members(mechanisms)
    names = list(dict.fromkeys(users))
    confirm(f"delete {counted_names('user', names)}", yes)
    with session.admin() as admin:
        owned = {user: _required(admin, session, user) for user in names}
        deletions: list[UserScramCredentialAlteration] = [
            UserScramCredentialDeletion(user, each) for user, own in owned.items() for each in wanted or own
        ]
        _alter(admin, session, deletions)
    session.done({"users": names, "deleted": True}, *(f"deleted user {user}" for user in names))


def _set(
    admin: AdminClient,
    session: Session,
    user: str,
    mechanisms: Iterable[ScramMechanism],
    password: str,
    iterations: int,
) -> None:
    infos = [ScramCredentialInfo(each, iterations) for each in mechanisms]
    _alter(admin, session, [UserScramCredentialUpsertion(user, info, password.encode()) for info in infos])


def _alter(admin: AdminClient, session: Session, alterations: Sequence[UserScramCredentialAlteration]) -> None:
    """Send alterations, one request for each user's first, one for each user's second: a request names a user once."""
    left = list(alterations)
    while left:
        batch = list({each.user: each for each in reversed(left)}.values())
        left = [each for each in left if each not in batch]
        _, errors = settle(admin.alter_user_scram_credentials(batch, request_timeout=session.timeout_s))
        fail(errors.values())


def _existing(admin: AdminClient, session: Session, user: str) -> list[ScramMechanism]:
    """Return the mechanisms of a user, none if there is no such user."""
    found, errors = settle(admin.describe_user_scram_credentials([user], request_timeout=session.timeout_s))
    fail(error for error in errors.values() if error.code is not ErrorCode.RESOURCE_NOT_FOUND)
    return [info.mechanism for each in found.values() for info in each.scram_credential_infos]


def _required(admin: AdminClient, session: Session, user: str) -> list[ScramMechanism]:
    found = _existing(admin, session, user)
    if not found:
        raise error_for(ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {user}")
    return found


def _members(names: Iterable[str] | None) -> list[ScramMechanism]:
    unknown = next((name for name in names or () if name.upper() not in _MECHANISMS), None)
    if unknown is not None:
        raise typer.BadParameter(f"--mechanism must be one of {', '.join(_MECHANISMS)}, not {unknown}")
    return list(dict.fromkeys(_MECHANISMS[name.upper()] for name in names or ()))


def _name(mechanism: ScramMechanism) -> str:
    return mechanism.name.replace("_", "-")


def _records(described: Iterable[UserScramCredentialsDescription]) -> list[dict[str, Any]]:
    return [
        {"user": each.user, "mechanism": _name(info.mechanism), "iterations": info.iterations}
        for each in sorted(described, key=lambda each: each.user)
        for info in each.scram_credential_infos
    ]
