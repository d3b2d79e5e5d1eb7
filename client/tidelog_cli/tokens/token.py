"""``tidelog token``: create, list, renew, expire. Only ``create`` prints a token's HMAC, which is its password.

``renew`` and ``expire`` name a token by its id, and find its HMAC among the tokens that the caller may see: an HMAC on
the command line could be read by other processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.admin import DelegationToken, TokenInformation
from tidelog_cli.options.connection import Session, Yes, connected
from tidelog_cli.options.durations import duration_ms
from tidelog_cli.output.printing import command_group, confirm
from tidelog_cli.output.times import time_text
from tidelog_foundation.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from tidelog.admin import AdminClient

app = command_group("Create, list, renew and expire delegation tokens.")

_COLUMNS = ("token_id", "owner", "requester", "renewers", "issued", "expires", "ends")
_DEFAULT_MS = -1

_TokenId = Annotated[str, typer.Argument(metavar="TOKEN-ID", help="The id of the token.")]
_Period = Annotated[
    str | None, typer.Option("--period", metavar="DURATION", help="Such as 90m or 12h. Default: that of the cluster.")
]


@app.command()
@connected
def create(
    session: Session,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="User:NAME", help="The owner of the token. Default: you.")
    ] = None,
    renewers: Annotated[
        list[str] | None,
        typer.Option("--renewer", metavar="User:NAME", help="Who may renew and expire it, too. May be repeated."),
    ] = None,
    max_lifetime: Annotated[
        str | None, typer.Option("--max-lifetime", metavar="DURATION", help="Such as 7d. Default: that of the cluster.")
    ] = None,
) -> None:
    """Create a token, and print its id and HMAC: the name and password of logins with tokenauth=true.

    The HMAC is not shown again (Kafka: kafka-delegation-tokens.sh --create).

    \b
    Examples:
      tidelog token create --max-lifetime 1d
      tidelog token create --owner User:alice --renewer User:bob
    """
    lifetime_ms = _duration_ms("--max-lifetime", max_lifetime)
    try:
        with session.admin() as admin:
            token = admin.create_delegation_token(
                renewers or (), owner=owner, max_lifetime_ms=lifetime_ms, request_timeout=session.timeout_s
            ).result()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    info, hmac = token.token_info, token.hmac_as_base64_string()
    session.done(
        {**_record(info), "hmac": hmac},
        f"created token {info.token_id} of {info.owner}",
        f"expires {time_text(info.expiry_timestamp)} unless it is renewed, at the latest "
        f"{time_text(info.max_timestamp)}",
        f"hmac {hmac}",
    )


@app.command("list")
@connected
def list_tokens(
    session: Session,
    owners: Annotated[
        list[str] | None,
        typer.Option("--owner", metavar="User:NAME", help="Only tokens of this principal. May be repeated."),
    ] = None,
) -> None:
    """List the tokens that you may see, without their HMACs (Kafka: kafka-delegation-tokens.sh --describe).

    Example: tidelog token list --owner User:alice
    """
    try:
        with session.admin() as admin:
            found = admin.describe_delegation_token(owners or None, request_timeout=session.timeout_s).result()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    session.show("tokens", [_record(token.token_info) for token in found], _COLUMNS)


@app.command()
@connected
def renew(session: Session, token_id: _TokenId, period: _Period = None) -> None:
    """Let a token expire later, at most at the end of its lifetime (Kafka: kafka-delegation-tokens.sh --renew).

    Example: tidelog token renew TOKEN-ID --period 12h
    """
    period_ms = _duration_ms("--period", period)
    with session.admin() as admin:
        hmac = _find(admin, session, token_id).hmac
        renewed = admin.renew_delegation_token(hmac, renew_time_period_ms=period_ms, request_timeout=session.timeout_s)
        expires = time_text(renewed.result())
    session.done({"token_id": token_id, "expires": expires}, f"token {token_id} expires {expires}")


@app.command()
@connected
def expire(session: Session, token_id: _TokenId, period: _Period = None, yes: Yes = False) -> None:
    """Remove a token, or let it expire after --period (Kafka: kafka-delegation-tokens.sh --expire).

    Clients that have logged in with the token stay connected until they authenticate again.

    Example: tidelog token expire TOKEN-ID --yes
    """
    period_ms = _duration_ms("--period", period)
    confirm(f"expire token {token_id}", yes)
    with session.admin() as admin:
        hmac = _find(admin, session, token_id).hmac
        changed = admin.expire_delegation_token(
            hmac, expiry_time_period_ms=period_ms, request_timeout=session.timeout_s
        )
        expiry = changed.result()
    if period_ms < 0:
        session.done({"token_id": token_id, "removed": True}, f"removed token {token_id}")
    else:
        expires = time_text(expiry)
        session.done({"token_id": token_id, "expires": expires}, f"token {token_id} expires {expires}")


def _find(admin: AdminClient, session: Session, token_id: str) -> DelegationToken:
    for token in admin.describe_delegation_token(request_timeout=session.timeout_s).result():
        if token.token_info.token_id == token_id:
            return token
    raise error_for(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, f"there is no token {token_id} that you may see")


def _duration_ms(option: str, text: str | None) -> int:
    if text is None:
        return _DEFAULT_MS
    return duration_ms(text, option, least_ms=1)


def _record(info: TokenInformation) -> dict[str, Any]:
    return {
        "token_id": info.token_id,
        "owner": info.owner,
        "requester": info.token_requester,
        "renewers": list(info.renewers),
        "issued": time_text(info.issue_timestamp),
        "expires": time_text(info.expiry_timestamp),
        "ends": time_text(info.max_timestamp),
    }
