"""The options that commands share: the cluster, client settings, the timeout, and JSON output.

A command takes a :class:`Session` first and is decorated with :func:`connected`, which adds the options. The cluster
comes from the first of: ``--bootstrap-servers``, the profile of ``--profile``, ``TIDELOG_BOOTSTRAP_SERVERS``, the
current profile, and the address of ``tidelog dev``.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from tidelog_cli.options.completion import complete_topic
from tidelog_cli.options.durations import seconds
from tidelog_cli.options.profiles import Profile, read_profiles
from tidelog_cli.output.log_lines import Verbose, show_log_lines
from tidelog_cli.output.printing import UsageError, print_json, print_records
from tidelog_foundation.config.providers import resolve_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.admin import AdminClient, QuorumAdmin
    from tidelog.consumer import Consumer
    from tidelog.producer import Producer

P = ParamSpec("P")

BOOTSTRAP_SERVERS_VARIABLE = "TIDELOG_BOOTSTRAP_SERVERS"
DEFAULT_BOOTSTRAP_SERVERS = "localhost:9094"
DEFAULT_TIMEOUT_S = 10.0
_CLIENT_ID = "tidelog-cli"
_QUORUM_SETTINGS = ("client.id", "request.timeout.ms")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The name of the topic.", autocompletion=complete_topic)]
Topics = Annotated[
    list[str], typer.Argument(metavar="TOPIC", help="The names of the topics.", autocompletion=complete_topic)
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Acks = Annotated[
    str,
    typer.Option(
        "--acks",
        "-a",
        metavar="all|1|0",
        help="The replicas that must have a record: all in sync, only the leader, or none.",
    ),
]
Compression = Annotated[
    str, typer.Option("--compression", "-z", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", min=0.001, metavar="N", help="Records per second. Default: as fast as possible."),
]
ValidateOnly = Annotated[bool, typer.Option("--validate-only", help="Only check whether the change is possible.")]


def _shared(
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            "--bootstrap-server",
            "-b",
            metavar="HOST:PORT,...",
            help=f"Nodes to ask for the cluster first. Default: {BOOTSTRAP_SERVERS_VARIABLE}, else those of the "
            f"current profile, else {DEFAULT_BOOTSTRAP_SERVERS}.",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="The profile of the cluster. Default: the current one."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-X", metavar="KEY=VALUE", help="A setting of the client, such as client.id=me. May be repeated."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", parser=seconds(0.1), metavar="SECONDS", help="The time to wait for answers.")
    ] = DEFAULT_TIMEOUT_S,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document; messages go to the standard error.")
    ] = False,
    verbose: Verbose = 0,
) -> Session:
    show_log_lines(verbose)
    return Session(find_cluster(bootstrap_servers, profile), parse_pairs(settings, "--set"), timeout, as_json)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster's addresses and settings, and whether ``--bootstrap-servers`` named it."""

    profile: Profile
    is_asked_for: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """The values of the shared options: the cluster, further client settings, the timeout in seconds, JSON or not.

    ``given`` are the settings of ``--set``; ``cluster`` is the result of :func:`find_cluster`. Both may contain
    references to config providers.
    """

    cluster: Cluster
    given: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = DEFAULT_TIMEOUT_S
    as_json: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """The settings of every client, with the values of references.

        Raises:
            ConfigError: a reference has no value.
        """
        return resolve_settings({"client.id": _CLIENT_ID, **self.cluster.profile.settings, **self.given})

    def admin(self) -> AdminClient:
        """Return an admin client, which the caller closes."""
        from tidelog.admin import AdminClient

        return AdminClient(self.settings)

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        """Return a consumer with further settings, which those of ``--set`` override; the caller closes it."""
        from tidelog.consumer import Consumer

        return Consumer({**settings, **self.settings})

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        """Return a producer with further settings, which those of ``--set`` override; the caller closes it."""
        from tidelog.producer import Producer

        return Producer({**settings, **self.settings})

    def quorum_admin(self, controllers: str | None) -> QuorumAdmin:
        """Return a client of the quorum, by way of the given controllers or of the nodes.

        Raises:
            click.UsageError: both are given.
        """
        from tidelog.admin import QuorumAdmin

        if controllers and self.cluster.is_asked_for:
            raise UsageError("--bootstrap-controllers and --bootstrap-servers exclude each other.")
        profile = self.cluster.profile
        # A profile has settings for all clients; this one supports fewer.
        settings = {"client.id": _CLIENT_ID} | {k: v for k, v in profile.client.items() if k in _QUORUM_SETTINGS}
        if controllers:
            settings["bootstrap.controllers"] = controllers
        else:
            settings["bootstrap.servers"] = profile.bootstrap_servers
        return QuorumAdmin(resolve_settings({**settings, **self.given}))

    def say(self, text: str) -> None:
        """Print a message for people: on stdout, or on stderr if stdout has JSON."""
        typer.echo(text, err=self.as_json)

    def done(self, document: Mapping[str, Any], *texts: str) -> None:
        """Report the result: lines for people, or the document."""
        if self.as_json:
            print_json(document)
        else:
            for text in texts:
                typer.echo(text)

    def show(self, name: str, records: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Print records as ``{"name": [...]}``, or these fields of them as a table."""
        if self.as_json:
            print_json({name: list(records)})
        else:
            print_records(records, columns)


def connected(command: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """Add the shared options to a command, after its own; its first argument is the :class:`Session` from them."""
    own = inspect.signature(command, eval_str=True)
    shared = inspect.signature(_shared, eval_str=True).parameters

    @functools.wraps(command)
    def run(**given: Any) -> None:
        session = _shared(**{name: given.pop(name) for name in shared})
        command(session, **given)  # type: ignore[call-arg]

    parameters = [*list(own.parameters.values())[1:], *shared.values()]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def find_cluster(bootstrap_servers: str | None = None, name: str | None = None) -> Cluster:
    """Return the cluster that the options name, or the configured one.

    A profile's settings, including credentials, apply to its own cluster only: addresses without ``--profile`` get none
    of them.

    Raises:
        TidelogError: there is no such profile, or the file of the profiles is invalid.
    """
    if name is not None:
        profile = read_profiles().get(name)
        return Cluster(
            replace(profile, bootstrap_servers=bootstrap_servers or profile.bootstrap_servers), bool(bootstrap_servers)
        )
    if bootstrap_servers:
        return Cluster(Profile(bootstrap_servers), is_asked_for=True)
    servers = os.environ.get(BOOTSTRAP_SERVERS_VARIABLE)
    if servers:
        return Cluster(Profile(servers))
    profiles = read_profiles()
    return Cluster(profiles.get(profiles.current) if profiles.current else Profile(DEFAULT_BOOTSTRAP_SERVERS))


def parse_pairs(pairs: Iterable[str] | None, option: str) -> dict[str, str]:
    """Return ``key=value`` texts as a dictionary; a text without ``=`` is a usage error that names ``option``."""
    parsed: dict[str, str] = {}
    for pair in pairs or ():
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise typer.BadParameter(f'"{pair}" is not KEY=VALUE.', param_hint=option)
        parsed[key.strip()] = value.strip()
    return parsed
