"""``tidelog chaos run``: clients, faults and the check of the clients' history."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tidelog_cli.chaos.options import ClusterOptions, LoadOptions, PlanOptions
from tidelog_cli.options.connection import parse_pairs
from tidelog_cli.options.option_groups import with_option_groups
from tidelog_cli.output.printing import print_json
from tidelog_foundation.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from tidelog_chaos.report import Run
    from tidelog_chaos.settings import RunSettings
    from tidelog_chaos.workload import WorkloadSettings

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
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
    """Print the outcome of a run as one JSON document: ``good`` if there is no anomaly and no problem."""
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
    """Return ``5s..15s``, or ``10s`` for a constant interval, in seconds."""
    shortest, _, longest = text.partition("..")
    least = parse_duration(shortest, "--interval")
    most = parse_duration(longest or shortest, "--interval")
    if most < least:
        raise typer.BadParameter(f'"{text}" must ascend.', param_hint="--interval")
    return least, most
