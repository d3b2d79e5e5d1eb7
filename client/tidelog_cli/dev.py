"""``tidelog dev``: a cluster on this machine, as long as the command runs."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog_cli.options.connection import DEFAULT_BOOTSTRAP_SERVERS, parse_pairs
from tidelog_cli.options.profiles import Profile, write_profile
from tidelog_cli.output.printing import counted, print_json
from tidelog_foundation.config.process import stop_signals
from tidelog_foundation.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from tidelog.testing import LocalCluster

_HOST = "127.0.0.1"
_DEFAULT_PORT = int(DEFAULT_BOOTSTRAP_SERVERS.rpartition(":")[2])
_DEFAULT_KAFKA_PORT = 9092


_Controllers = Annotated[
    int, typer.Option("--controllers", min=1, max=9, metavar="N", help="The number of controllers.")
]
_Nodes = Annotated[int, typer.Option("--nodes", min=1, max=99, metavar="N", help="The number of storage nodes.")]
_Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=1,
        max=65_400,
        metavar="PORT",
        help="The first node's port; the others get the next ones. Default: the ports that the nodes had before in "
        f"--data-dir, else {_DEFAULT_PORT}.",
    ),
]
_KafkaPort = Annotated[
    int | None,
    typer.Option(
        "--kafka-port",
        min=1,
        max=65_300,
        metavar="PORT",
        help="The first node's port for clients of Kafka; the others get the next ones that are not nodes' ports. "
        f"Default: as with --port, else {_DEFAULT_KAFKA_PORT}.",
    ),
]
_DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        file_okay=False,
        # Files and printed commands refer to it, and are used in other folders.
        resolve_path=True,
        metavar="FOLDER",
        help="Keep the data in this folder. Default: a temporary folder, removed at the end.",
    ),
]
_Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-X",
        metavar="KEY=VALUE",
        help="A setting of the servers, such as num.partitions=6. May be repeated.",
    ),
]
_Secure = Annotated[
    bool,
    typer.Option(
        "--secure",
        help="Encrypt and authenticate every connection, and authorize the user admin alone. Certificates, passwords "
        "and files for clients are in the folder security of the data.",
    ),
]
_Metrics = Annotated[
    bool,
    typer.Option("--metrics", help="Serve the metrics and health of every process over HTTP, and print the addresses."),
]
_AsJson = Annotated[
    bool, typer.Option("--json", help="Print where it is as one JSON document; messages go to the standard error.")
]


def dev(
    controllers: _Controllers = 3,
    nodes: _Nodes = 3,
    port: _Port = None,
    kafka_port: _KafkaPort = None,
    data_dir: _DataDir = None,
    secure: _Secure = False,
    metrics: _Metrics = False,
    settings: _Settings = None,
    as_json: _AsJson = False,
) -> None:
    """Run a cluster of real processes on this machine until Ctrl-C.

    Example: tidelog dev --controllers 1 --nodes 1 --data-dir ./data --secure
    """
    from tidelog.testing import LocalCluster  # the servers' dependencies are not imported for the other commands

    config = parse_pairs(settings, "--set")
    with _stop_on_signal() as stop:
        try:
            ports, kafka_ports = _wanted_ports(nodes, port, kafka_port, data_dir)
            with LocalCluster(
                controllers,
                nodes,
                data_dir,
                config,
                node_ports=ports,
                kafka_ports=kafka_ports,
                on_busy_port=_report_busy_port,
                security="sasl_ssl" if secure else None,
                metrics=metrics,
            ) as cluster:
                profile = _write_profile(cluster) if secure else None
                if as_json:
                    _print_addresses(cluster, profile)
                else:
                    _explain(cluster, data_dir, profile)
                while not stop.wait(0.5):
                    pass
                typer.echo("stopping", err=as_json)
        except ModuleNotFoundError as error:
            raise error_for(ErrorCode._STATE, f"{error.name} is not installed: pip install 'tidelog[all]'") from error
        except (RuntimeError, TimeoutError) as error:
            # The last line of a process that fails at its start has the reason.
            raise error_for(ErrorCode._FAIL, f"cannot start the cluster: {str(error).splitlines()[-1]}") from error


def _write_profile(cluster: LocalCluster) -> Path:
    """Write a profile of the user admin, with a reference to the password, into a file of its own; return its path."""
    profile = Profile(cluster.bootstrap_servers, cluster.security.profile_settings())
    path = cluster.security.folder / "profile.toml"
    write_profile("dev", profile, use=True, path=path)
    return path


def _print_addresses(cluster: LocalCluster, profile: Path | None) -> None:
    document: dict[str, object] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "kafka_bootstrap_servers": cluster.kafka_bootstrap_servers,
        "data_dir": str(cluster.data_dir),
    }
    if addresses := _metrics_addresses(cluster):
        document["metrics"] = addresses
    if profile is not None:
        document |= {"profile": str(profile), "client_settings": cluster.security.profile_settings()}
    print_json(document)


def _explain(cluster: LocalCluster, data_dir: Path | None, profile: Path | None) -> None:
    nodes, bootstrap_servers = len(cluster.nodes), cluster.bootstrap_servers
    what = f"{counted(len(cluster.controllers), 'controller')} and {counted(nodes, 'node')}"
    where = f"kept in {data_dir}" if data_dir else "removed at the end"
    typer.echo(f"{what} are ready at {bootstrap_servers}; the data is {where}.\n")
    typer.echo("In another terminal:\n")
    if profile is not None:
        typer.echo(f"  export TIDELOG_PROFILE={profile}")
    elif not bootstrap_servers.startswith(f"{_HOST}:{_DEFAULT_PORT}"):
        typer.echo(f"  export TIDELOG_BOOTSTRAP_SERVERS={bootstrap_servers}")
    typer.echo(f"  tidelog topic create hello --partitions 3 --replication-factor {min(nodes, 3)}")
    typer.echo("  echo world | tidelog produce hello")
    typer.echo("  tidelog consume hello --from-beginning --exit-at-end\n")
    if profile is not None:
        _explain_secured_clients(cluster)
    elif cluster.kafka_bootstrap_servers:
        typer.echo(f"Clients of Kafka: bootstrap.servers={cluster.kafka_bootstrap_servers}\n")
    if addresses := _metrics_addresses(cluster):
        typer.echo("Metrics:\n")
        for name, url in addresses.items():
            typer.echo(f"  {url}  {name}")
        typer.echo()
    typer.echo("Ctrl-C stops the cluster.")


def _metrics_addresses(cluster: LocalCluster) -> dict[str, str]:
    """Return the addresses of the metrics by process."""
    processes = (*cluster.controllers.values(), *cluster.nodes.values())
    return {each.name: f"http://{each.metrics_address}/metrics" for each in processes if each.metrics_address}


def _explain_secured_clients(cluster: LocalCluster) -> None:
    from tidelog.testing.security import JAVA_FILE, LIBRDKAFKA_FILE

    folder, kafka_servers = cluster.security.folder, cluster.kafka_bootstrap_servers
    typer.echo("Settings of Tidelog's clients in Python:\n")
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "config.providers": "file"}
    for key, value in {**settings, **cluster.security.profile_settings()}.items():
        typer.echo(f"  {key}={value}")
    if kafka_servers:
        typer.echo("\nClients of Kafka:\n")
        typer.echo(f"  kcat -F {folder / LIBRDKAFKA_FILE} -L")
        typer.echo(f"  kafka-topics.sh --bootstrap-server {kafka_servers} --command-config {folder / JAVA_FILE} --list")
    typer.echo()


def _wanted_ports(
    nodes: int, port: int | None, kafka_port: int | None, data_dir: Path | None
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the nodes' ports for Tidelog clients and for Kafka clients; empty to keep those from earlier runs."""
    from tidelog.testing.cluster_folder import kept_ports

    first, first_kafka = port or _DEFAULT_PORT, kafka_port or _DEFAULT_KAFKA_PORT
    ports = range(first, first + nodes)
    kafka_ports = [p for p in range(first_kafka, first_kafka + 2 * nodes) if p not in ports][:nodes]
    has_kept = data_dir is not None and any(kind == "node" for kind, _ in kept_ports(data_dir))
    return () if has_kept and port is None else ports, () if has_kept and kafka_port is None else kafka_ports


def _report_busy_port(process: str, wanted: int, port: int) -> None:
    typer.echo(f"port {wanted} is in use, so {process} listens on port {port}", err=True)


@contextlib.contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    previous = {number: signal.signal(number, on_signal) for number in stop_signals()}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
