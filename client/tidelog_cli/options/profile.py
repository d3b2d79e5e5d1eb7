"""``tidelog profile``: named clusters in a file of the user."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog_cli.options.connection import parse_pairs
from tidelog_cli.options.option_groups import with_option_groups
from tidelog_cli.options.profiles import (
    Profile,
    delete_profile,
    profile_path,
    read_profiles,
    use_profile,
    write_profile,
)
from tidelog_cli.options.security import SecurityOptions
from tidelog_cli.output.printing import UsageError, command_group, print_json, print_records

app = command_group("Save the addresses and settings of clusters under names.")


def complete_profile(incomplete: str) -> list[str]:
    """Return the profiles that start with ``incomplete``, for the shell's completion."""
    try:
        names = read_profiles().by_name
    except Exception:  # noqa: BLE001  # a failed completion is silent
        return []
    return sorted(name for name in names if name.startswith(incomplete))


Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the profile.", autocompletion=complete_profile)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
@with_option_groups
def create(
    name: Name,
    bootstrap_servers: Annotated[
        str,
        typer.Option(
            "--bootstrap-servers",
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT,...",
            help="Nodes to ask for the cluster first.",
        ),
    ],
    security: SecurityOptions,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-X", metavar="KEY=VALUE", help="A setting of every client of the cluster. May be repeated."
        ),
    ] = None,
    use: Annotated[
        bool, typer.Option("--use", help="Make it the current profile, as the first profile always is.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create or replace a profile.

    Example: tidelog profile create staging -b node1:9094 --security sasl_ssl --ca ca.pem --username admin
    """
    others = parse_pairs(settings, "--set")
    given = security.settings(others)
    twice = next((key for key in given if key in others and given[key] != others[key]), None)
    if twice is not None:
        raise UsageError(f"{twice} has the value {given[twice]} by an option, and {others[twice]} by --set.")
    write_profile(name, Profile(bootstrap_servers, {**given, **others}), use=use)
    used = " and is used from now on" if read_profiles().current == name else f"; tidelog profile use {name} takes it"
    _say(name, f"profile {name} is in {profile_path()}{used}", as_json)


@app.command()
def use(name: Name, as_json: Json = False) -> None:
    """Make a profile the current one.

    Example: tidelog profile use staging
    """
    use_profile(name)
    _say(name, f"profile {name} is now the current one", as_json)


@app.command("list")
def list_profiles(as_json: Json = False) -> None:
    """List the profiles.

    Example: tidelog profile list
    """
    profiles = read_profiles()
    records = [
        {"name": name, "bootstrap_servers": profile.bootstrap_servers, "current": name == profiles.current}
        for name, profile in sorted(profiles.by_name.items())
    ]
    if as_json:
        print_json({"profiles": records})
    elif records:
        print_records(records, ("name", "bootstrap_servers", "current"))
    else:
        typer.echo(f"no profiles in {profile_path()}; create one with tidelog profile create", err=True)


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Default: the current one.", autocompletion=complete_profile),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the addresses and settings of a profile; passwords and keys are hidden, references to them are not.

    Example: tidelog profile show staging
    """
    profiles = read_profiles()
    chosen = name or profiles.current
    if chosen is None:
        typer.echo(f"no profile in {profile_path()} is the current one; choose one with tidelog profile use", err=True)
        raise typer.Exit(1)
    settings = profiles.get(chosen).shown_settings
    if as_json:
        print_json({"name": chosen, "settings": settings})
        return
    typer.echo(f"profile {chosen} of {profile_path()}\n")
    print_records([{"setting": key, "value": value} for key, value in settings.items()], ("setting", "value"))


@app.command()
def delete(name: Name, as_json: Json = False) -> None:
    """Delete a profile.

    Example: tidelog profile delete staging
    """
    delete_profile(name)
    _say(name, f"deleted profile {name}", as_json)


def _say(name: str, text: str, as_json: bool) -> None:
    """Report the result, or the profile and the current one as JSON."""
    if not as_json:
        typer.echo(text)
        return
    profiles = read_profiles()
    print_json({"name": name, "exists": name in profiles.by_name, "current": name == profiles.current})
