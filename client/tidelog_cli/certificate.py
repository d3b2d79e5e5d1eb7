"""``tidelog certificate``: an authority in a folder, and the certificates of servers and users that it issues."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from tidelog_cli.output.printing import print_json
from tidelog_foundation.errors import ConfigError, ErrorCode, error_for

_FILE_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_AUTHORITY, _AUTHORITY_KEY = "ca", "ca-key"


def certificate(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The common name: the user alice, or a server such as node-1.")
    ],
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="A name or address of a server. May be repeated; users have none."),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--folder", file_okay=False, metavar="FOLDER", help="The folder of the authority.")
    ] = Path("certificates"),
    days: Annotated[int, typer.Option("--days", min=1, max=3650, metavar="N", help="The time until it expires.")] = 365,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Create or renew a certificate; the first one also creates the authority.

    A renewed certificate keeps its hosts, unless --host names others.

    NAME.pem has the private key and the certificate, ca.pem the certificate of the authority. Keep ca-key.pem, the
    authority's private key, away from the machines of the cluster.

    Example: tidelog certificate node-1 --host node1.example --host 10.0.0.1
    """
    if not _FILE_NAME.fullmatch(name) or name in (_AUTHORITY, _AUTHORITY_KEY):
        raise ConfigError(f'the name has 1 to 64 letters, digits, ".", "-" and "_", and is not ca or ca-key: {name!r}')
    try:
        from tidelog_foundation.security.authority import Authority, hosts_in
    except ModuleNotFoundError as error:
        raise error_for(ErrorCode._STATE, f"{error.name} is not installed: pip install 'tidelog[tls]'") from error
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = Authority.open(folder / f"{_AUTHORITY_KEY}.pem")
    trusted = authority.write_pem(folder / f"{_AUTHORITY}.pem")
    store = folder / f"{name}.pem"
    hosts = hosts or hosts_in(store)
    issued = authority.issue(name, hosts, timedelta(days=days))
    issued.write_pem(store)
    if as_json:
        shown = {"name": name, "hosts": hosts, "key_store": str(store), "ca": str(trusted)}
        print_json({**shown, "expires": issued.certificate.not_valid_after_utc.isoformat()})
    else:
        of = f" for {', '.join(hosts)}" if hosts else ""
        typer.echo(f"{store}{of} is signed by {trusted} and expires in {days} days")
