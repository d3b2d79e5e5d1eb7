"""``tidelog chaos run``: clients, faults and the check of what the clients saw."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tidelog.cli.options import parse_pairs
from tidelog.cli.output import print_json
from tidelog.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from tidelog.chaos.report import Run
    from tidelog.chaos.settings import RunSettings

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_MOST_KEYS = 48
_LEAST_WRITES_PER_KEY = 1_000

_OF_OWN_CLUSTERS = ("controllers", "nodes", "disk_size", "keep_data")
_OF_KUBERNETES = ("namespace", "selector", "context", "image")

Pairs = list[str] | None


def run(
    ctx: typer.Context,
    workload: Annotated[
        str,
        typer.Option(
            "--workload", help="What the consumers do: queue, each reads all partitions; subscribe, they are a group."
        ),
    ] = "queue",
    faults: Annotated[
        str,
        typer.Option(
            "--faults",
            metavar="NAME,...",
            help="kill, stop, pause, slow, partition, delay, disk (disk-full and disk-corrupt), clock, reassign; one "
            "kind of a fault as partition:ring; or none.",
        ),
    ] = "kill,pause",
    duration: Annotated[
        str, typer.Option("--duration", metavar="TIME", help="For how long faults come, as 90s, 5m or 1h.")
    ] = "5m",
    interval: Annotated[
        str, typer.Option("--interval", metavar="TIME..TIME", help="The time from one fault to the next.")
    ] = "5s..15s",
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="The plan of faults, to have it again. Default: a new one.")
    ] = None,
    driver: Annotated[
        str,
        typer.Option(
            "--driver",
            help="local (processes on loopback), netns (with networks in between), kubernetes, or none: "
            "a cluster to which nothing is done.",
        ),
    ] = "local",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", file_okay=False, metavar="DIR", help="A new directory. Default: chaos-<time>."),
    ] = None,
    controllers: Annotated[int, typer.Option("--controllers", min=1, max=9, help="Controllers to start.")] = 3,
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=50, help="Storage nodes to start.")] = 3,
    topics: Annotated[int, typer.Option("--topics", min=1, max=100, help="Topics that are written to at a time.")] = 2,
    partitions: Annotated[int, typer.Option("--partitions", min=1, max=100, help="Partitions of each topic.")] = 3,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", min=1, max=9, help="Replicas of each partition.")
    ] = 3,
    rate: Annotated[float, typer.Option("--rate", min=1, help="Records per second, by all clients.")] = 200,
    producers: Annotated[
        int, typer.Option("--producers", min=1, max=64, help="Producers, each with eight sends under way.")
    ] = 2,
    consumers: Annotated[
        int | None,
        typer.Option("--consumers", min=1, max=64, help="Consumers. Default: 2, as members of a group 4."),
    ] = None,
    crash_interval: Annotated[
        str, typer.Option("--crash-interval", metavar="TIME", help="A client crashes about so often; 0s: never.")
    ] = "30s",
    producer_settings: Annotated[
        Pairs, typer.Option("--producer", metavar="KEY=VALUE", help="A setting of the producers. May be repeated.")
    ] = None,
    consumer_settings: Annotated[
        Pairs, typer.Option("--consumer", metavar="KEY=VALUE", help="A setting of the consumers. May be repeated.")
    ] = None,
    topic_settings: Annotated[
        Pairs, typer.Option("--topic", metavar="KEY=VALUE", help="A setting of the topics. May be repeated.")
    ] = None,
    settings: Annotated[
        Pairs, typer.Option("--set", "-X", metavar="KEY=VALUE", help="A setting of the servers. May be repeated.")
    ] = None,
    bootstrap_servers: Annotated[
        str,
        typer.Option(
            "--bootstrap-servers",
            "-b",
            metavar="HOST:PORT,...",
            help="The cluster, for the drivers kubernetes and none.",
        ),
    ] = "",
    client: Annotated[
        str,
        typer.Option(
            "--client",
            help="Whose producers and consumers work: tidelog, over gRPC, or confluent-kafka, over Kafka's protocol.",
        ),
    ] = "tidelog",
    kafka_bootstrap_servers: Annotated[
        str,
        typer.Option(
            "--kafka-bootstrap-servers",
            metavar="HOST:PORT,...",
            help="The nodes' Kafka listeners, for confluent-kafka with the drivers kubernetes and none.",
        ),
    ] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", help="The namespace of the pods, for kubernetes.")
    ] = "default",
    selector: Annotated[
        str, typer.Option("--selector", help="The label selector of the pods.")
    ] = "app.kubernetes.io/name=tidelog",
    context: Annotated[str, typer.Option("--context", help="The context of kubectl. Default: its current one.")] = "",
    image: Annotated[
        str, typer.Option("--image", help="An image with sh, iptables and tc, for partition and delay in pods.")
    ] = "nicolaka/netshoot",
    disk_size: Annotated[
        int, typer.Option("--disk-size", min=64, metavar="MIB", help="The disks of disk-full, in memory.")
    ] = 512,
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Keep the cluster's data also when nothing was found.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the verdict as JSON; progress and summary go to the standard error.")
    ] = False,
) -> None:
    """Put a cluster under faults and check that it keeps what it promised.

    A cluster of this machine is started and ended again, or a given one is used. Exit code 1: something was lost,
    stored twice, reordered or not available again, or the run could not be done. 2: an option is not valid.

    Examples:

    tidelog chaos run --faults kill,pause,clock --duration 5m

    tidelog chaos run --driver netns --faults kill,partition,disk --duration 30m

    tidelog chaos run --workload subscribe --consumer group.protocol=consumer

    tidelog chaos run --client confluent-kafka --faults kill,stop,pause

    tidelog chaos run --driver kubernetes -b tidelog:9094 --faults kill
    """
    from tidelog.chaos.faults.plan import parse_faults
    from tidelog.chaos.settings import OWN_CLUSTER, KubernetesSettings, RunSettings
    from tidelog.chaos.workload import WorkloadSettings

    for options, drivers in ((_OF_OWN_CLUSTERS, OWN_CLUSTER), (_OF_KUBERNETES, ("kubernetes",))):
        if driver not in drivers:
            _refuse_given(ctx, options, f"it is of the driver {' or '.join(drivers)}, not of {driver}")
    duration_s = parse_duration(duration, "--duration")
    queue = WorkloadSettings(
        rate_per_s=rate,
        topics=topics,
        partitions=partitions,
        replication_factor=replication_factor,
        writes_per_key=max(_LEAST_WRITES_PER_KEY, int(rate * duration_s / _MOST_KEYS)),
        producers=producers,
        consumers=consumers,
        crash_interval_s=parse_duration(crash_interval, "--crash-interval", least_s=0),
        producer=parse_pairs(producer_settings, "--producer"),
        consumer=parse_pairs(consumer_settings, "--consumer"),
        topic=parse_pairs(topic_settings, "--topic"),
    )
    run_settings = RunSettings(
        output=(output or Path(f"chaos-{time.strftime('%Y%m%d-%H%M%S')}")).absolute(),
        driver=driver,
        workload=workload,
        faults=parse_faults(faults),
        duration_s=duration_s,
        interval_s=parse_interval(interval),
        seed=random.randrange(100_000) if seed is None else seed,
        controllers=controllers,
        nodes=nodes,
        bootstrap_servers=bootstrap_servers,
        client=client,
        kafka_bootstrap_servers=kafka_bootstrap_servers,
        queue=queue,
        servers=parse_pairs(settings, "--set"),
        kubernetes=KubernetesSettings(namespace=namespace, selector=selector, context=context, image=image),
        disk_mib=disk_size,
        keep_data=keep_data,
    )
    _run(run_settings, as_json=as_json)


def _refuse_given(ctx: typer.Context, options: Iterable[str], reason: str) -> None:
    for name in options:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(reason, param_hint=f"--{name.replace('_', '-')}")


def _run(settings: RunSettings, *, as_json: bool) -> None:
    from tidelog.chaos.isolation import isolate
    from tidelog.chaos.judgement import REPORT, judge
    from tidelog.chaos.report import read_run
    from tidelog.chaos.runner import run_chaos
    from tidelog.chaos.settings import make_driver

    console = Console(highlight=False, stderr=as_json)
    try:
        cluster = make_driver(settings)
        if settings.driver == "netns" or (settings.driver == "local" and "disk-full" in settings.fault_names):
            isolate(network=settings.driver == "netns")
        outcome = run_chaos(settings, cluster, console)
    except ModuleNotFoundError as error:
        raise error_for(ErrorCode._STATE, f"{error.name} is not installed: pip install 'tidelog[all]'") from error
    except (RuntimeError, TimeoutError) as error:
        raise error_for(ErrorCode._FAIL, " ".join(str(error).split())) from error
    is_good = judge(settings, outcome, console)
    if as_json:
        print_run(read_run(settings.output), settings.output / REPORT)
    if not is_good:
        raise typer.Exit(1)


def print_run(run: Run, page: Path) -> None:
    """Print what came of a run as one JSON document: ``good`` where there is no anomaly and no problem."""
    verdict = run.verdict.as_json()
    print_json({"good": run.is_good, "problems": list(run.problems), "report": str(page), "verdict": verdict})


def parse_duration(text: str, option: str, least_s: float = 0.001) -> float:
    """Return ``90s``, ``5m`` or ``1.5h`` in seconds; anything else is a usage error that names ``option``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text.strip())
    seconds = float(match[1]) * _UNITS_S[match[2]] if match else -1.0
    if seconds < least_s:
        raise typer.BadParameter(f'"{text}" is not a duration such as 90s, 5m or 1h.', param_hint=option)
    return seconds


def parse_interval(text: str) -> tuple[float, float]:
    """Return ``5s..15s``, or ``10s`` for always the same, in seconds."""
    shortest, _, longest = text.partition("..")
    least = parse_duration(shortest, "--interval")
    most = parse_duration(longest or shortest, "--interval")
    if most < least:
        raise typer.BadParameter(f'"{text}" must ascend.', param_hint="--interval")
    return least, most
