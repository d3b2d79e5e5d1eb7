"""``tidelog chaos run``: clients, faults and the check of the clients' history."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tidelog_cli.chaos.options import ClusterOptions, LoadOptions, PlanOptions
from tidelog_cli.options.connection import parse_pairs
from tidelog_cli.options.durations import duration_ms
from tidelog_cli.options.option_groups import with_option_groups
from tidelog_cli.output.printing import print_json
from tidelog_foundation.errors import ConfigError, ErrorCode, error_for

if TYPE_CHECKING:
    from tidelog_chaos.report import Run
    from tidelog_chaos.settings import RunSettings
    from tidelog_chaos.workload import WorkloadSettings

_MOST_KEYS = 48
_LEAST_WRITES_PER_KEY = 1_000

_OF_OWN_CLUSTERS = ("controllers", "nodes", "disk_size", "keep_data", "secure")
_OF_KUBERNETES = ("namespace", "selector", "context", "image")


@with_option_groups
def run(
    ctx: typer.Context,
    plan: PlanOptions,
    load: LoadOptions,
    cluster: ClusterOptions,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the verdict as JSON; progress and summary go to the standard error.")
    ] = False,
) -> None:
    """Inject faults into a cluster and check that it keeps its guarantees.

    The command starts a cluster on this machine and stops it at the end, or uses an existing one. Exit code 1: a record
    was lost, stored twice or reordered, a partition did not become available again, or the run failed. 2: an option is
    invalid.

    Examples:

    tidelog chaos run --faults kill,pause,clock --duration 5m

    tidelog chaos run --driver netns --faults kill,partition,disk --duration 30m

    tidelog chaos run --workload subscribe --consumer group.protocol=consumer

    tidelog chaos run --workload transactions --faults kill,pause

    tidelog chaos run --workload spark --crash-interval 15s

    tidelog chaos run --client confluent-kafka --faults kill,stop,pause

    tidelog chaos run --secure --faults kill,certificates

    tidelog chaos run --driver kubernetes -b tidelog:9094 --faults kill
    """
    _refuse_options_of_others(ctx, plan.driver)
    _run(_run_settings(plan, load, cluster), as_json=as_json)


def _run_settings(plan: PlanOptions, load: LoadOptions, cluster: ClusterOptions) -> RunSettings:
    """Return the settings from the options."""
    from tidelog_chaos.faults.plan import parse_faults
    from tidelog_chaos.settings import KubernetesSettings, RunSettings

    duration_s = parse_duration(plan.duration, "--duration")
    return RunSettings(
        output=(plan.output or Path(f"chaos-{time.strftime('%Y%m%d-%H%M%S')}")).absolute(),
        driver=plan.driver,
        workload=plan.workload,
        faults=parse_faults(plan.faults),
        duration_s=duration_s,
        interval_s=parse_interval(plan.interval),
        seed=random.randrange(100_000) if plan.seed is None else plan.seed,
        controllers=plan.controllers,
        nodes=plan.nodes,
        bootstrap_servers=cluster.bootstrap_servers,
        client=cluster.client,
        kafka_bootstrap_servers=cluster.kafka_bootstrap_servers,
        queue=_workload_settings(load, duration_s),
        servers=parse_pairs(cluster.settings, "--set"),
        kubernetes=KubernetesSettings(
            namespace=cluster.namespace, selector=cluster.selector, context=cluster.context, image=cluster.image
        ),
        disk_mib=cluster.disk_size,
        keep_data=cluster.keep_data,
        secure=cluster.secure,
    )


def _workload_settings(load: LoadOptions, duration_s: float) -> WorkloadSettings:
    from tidelog_chaos.workload import WorkloadSettings

    return WorkloadSettings(
        rate_per_s=load.rate,
        topics=load.topics,
        partitions=load.partitions,
        replication_factor=load.replication_factor,
        writes_per_key=max(_LEAST_WRITES_PER_KEY, int(load.rate * duration_s / _MOST_KEYS)),
        producers=load.producers,
        consumers=load.consumers,
        crash_interval_s=parse_duration(load.crash_interval, "--crash-interval", least_s=0),
        producer=parse_pairs(load.producer_settings, "--producer"),
        consumer=parse_pairs(load.consumer_settings, "--consumer"),
        topic=parse_pairs(load.topic_settings, "--topic"),
    )


def _refuse_options_of_others(ctx: typer.Context, driver: str) -> None:
    """Refuse options that only apply to other drivers."""
    from tidelog_chaos.settings import OWN_CLUSTER

    for options, drivers in ((_OF_OWN_CLUSTERS, OWN_CLUSTER), (_OF_KUBERNETES, ("kubernetes",))):
        if driver not in drivers:
            _refuse_given(ctx, options, f"it is of the driver {' or '.join(drivers)}, not of {driver}")


def _refuse_given(ctx: typer.Context, options: Iterable[str], reason: str) -> None:
    for name in options:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(reason, param_hint=f"--{name.replace('_', '-')}")


def _run(settings: RunSettings, *, as_json: bool) -> None:
    from tidelog_chaos.isolation import isolate
    from tidelog_chaos.judgement import REPORT, judge
    from tidelog_chaos.report import read_run
    from tidelog_chaos.runner import run_chaos
    from tidelog_chaos.settings import make_driver

    console = Console(highlight=False, stderr=as_json)
    try:
        if settings.workload == "spark":
            _check_spark()
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


def _check_spark() -> None:
    """Check that Spark can run here.

    Raises:
        TidelogError: PySpark is not installed.
        ConfigError: There is no Java, or the system does not show the processes of Spark.
    """
    from tidelog_chaos.workload.spark.processes import why_no_processes

    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401

        from tidelog_spark.java import find_java
    except ModuleNotFoundError as error:
        text = f"{(error.name or '').partition('.')[0]} is not installed: pip install 'tidelog[spark]'"
        raise error_for(ErrorCode._STATE, f"the workload spark cannot run: {text}") from error
    find_java()
    reason = why_no_processes()
    if reason is not None:
        raise ConfigError(f"the workload spark does not run here: {reason}")


def print_run(run: Run, page: Path) -> None:
    """Print the outcome of a run as one JSON document: ``good`` if there is no anomaly and no problem."""
    verdict = run.verdict.as_json()
    print_json({"good": run.is_good, "problems": list(run.problems), "report": str(page), "verdict": verdict})


def parse_duration(text: str, option: str, least_s: float = 0.001) -> float:
    """Return ``90s``, ``5m`` or ``1.5h`` in seconds; anything else is a usage error that names ``option``."""
    return duration_ms(text, option, least_ms=round(least_s * 1000)) / 1000


def parse_interval(text: str) -> tuple[float, float]:
    """Return ``5s..15s``, or ``10s`` for a constant interval, in seconds."""
    shortest, _, longest = text.partition("..")
    least = parse_duration(shortest, "--interval")
    most = parse_duration(longest or shortest, "--interval")
    if most < least:
        raise typer.BadParameter(f'"{text}" must ascend.', param_hint="--interval")
    return least, most
