"""``tidelog quorum format``: prepares a controller's folder, so that a new cluster begins with users.

Exit code 1: the folder has a metadata log already, or cannot be written; 2: wrong usage.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tidelog_cli.output.printing import UsageError, counted_names
from tidelog_cli.users.passwords import first_line
from tidelog_foundation.config.process import load_properties
from tidelog_foundation.config.providers import resolve_settings
from tidelog_foundation.errors import ConfigError, ErrorCode, error_for
from tidelog_foundation.sasl.scram_arguments import NewUser, parse_new_user
from tidelog_foundation.sasl.scram_credentials import SALT_BYTES
from tidelog_quorum.metadata.records import MetadataRecord, UserScramCredentialRecord
from tidelog_quorum.server.bootstrap_file import is_formatted, write_bootstrap_records
from tidelog_quorum.server.config import QuorumConfig, parse_quorum_config

app = typer.Typer(add_completion=False)


@app.command("format")
def quorum_format(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, help="The properties file of a controller.")],
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "--add-scram",
            metavar="MECHANISM=[name=USER,...]",
            help="A user of the new cluster, as for Kafka's kafka-storage.sh: with password, or with salt and "
            "saltedpassword, and iterations. May be repeated.",
        ),
    ] = None,
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", help="Change nothing and succeed if the folder is formatted already.")
    ] = False,
) -> None:
    """Prepare the folder of a controller that has never run, so that its cluster begins with users.

    In place of the password, password-file or password-env can name its file or environment variable. Format all
    controllers of a new cluster with the same users: the first leader creates them.

    \b
    Example:
      tidelog quorum format controller.properties \\
        --add-scram 'SCRAM-SHA-512=[name=admin,password-env=PASSWORD]'
    """
    users = [parse_new_user(text) for text in add_scram or ()]
    if not users:
        raise UsageError("Missing option --add-scram.")
    records = _records(users)
    directory = Path(_config(file).metadata_log_dir)
    if is_formatted(directory):
        if ignore_formatted:
            typer.echo(f"{directory} is formatted already")
            return
        text = f"{directory} is formatted already: add users with tidelog user create, or pass --ignore-formatted"
        raise error_for(ErrorCode._STATE, text)
    write_bootstrap_records(directory, records)
    typer.echo(f"formatted {directory} with {counted_names('user', sorted({user.name for user in users}))}")


def _config(file: Path) -> QuorumConfig:
    return parse_quorum_config(resolve_settings(load_properties(file)))


def _records(users: Sequence[NewUser]) -> list[MetadataRecord]:
    if len({user.key for user in users}) < len(users):
        raise UsageError("--add-scram names a user twice with the same mechanism.")
    return [
        UserScramCredentialRecord.of(user.key, user.credential(_password(user), secrets.token_bytes(SALT_BYTES)))
        for user in users
    ]


def _password(user: NewUser) -> str:
    """Return the password, "" for a user with a salted one."""
    if user.salted_password is not None:
        return ""
    password = user.password
    if user.password_file is not None:
        password = first_line(Path(user.password_file))
    elif user.password_env is not None:
        password = os.environ.get(user.password_env)
    if not password:
        raise ConfigError(f"the password of user {user.name} must not be empty")
    return password
