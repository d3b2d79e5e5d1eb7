"""The options of ``tidelog chaos run``, grouped by subject."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

Pairs = list[str] | None


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The faults, their schedule, and the cluster that the run starts for them."""

    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            help="What the clients do: queue, each consumer reads all partitions; subscribe, the consumers are a "
            "group; transactions, producers and a group's members write in transactions; spark, a query copies exactly "
            "once.",
        ),
    ] = "queue"
    faults: Annotated[
        str,
        typer.Option(
            "--faults",
            metavar="NAME,...",
            help="kill, stop, pause, slow, partition, delay, disk (disk-full and disk-corrupt), clock, reassign, "
            "certificates and credentials (with --secure); one kind of a fault as partition:ring; or none.",
        ),
    ] = "kill,pause"
    duration: Annotated[
        str, typer.Option("--duration", metavar="TIME", help="For how long faults come, as 90s, 5m or 1h.")
    ] = "5m"
    interval: Annotated[
        str, typer.Option("--interval", metavar="TIME..TIME", help="The time from one fault to the next.")
    ] = "5s..15s"
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="The plan of faults, to have it again. Default: a new one.")
    ] = None
    driver: Annotated[
        str,
        typer.Option(
            "--driver",
            help="local (processes on loopback), netns (with networks in between), kubernetes, or none: "
            "a cluster to which nothing is done.",
        ),
    ] = "local"
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", file_okay=False, metavar="DIR", help="A new directory. Default: chaos-<time>."),
    ] = None
    controllers: Annotated[int, typer.Option("--controllers", min=1, max=9, help="Controllers to start.")] = 3
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=50, help="Storage nodes to start.")] = 3


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The topics and the clients that write to them and read from them."""

    topics: Annotated[int, typer.Option("--topics", min=1, max=100, help="Topics that are written to at a time.")] = 2
    partitions: Annotated[int, typer.Option("--partitions", min=1, max=100, help="Partitions of each topic.")] = 3
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", min=1, max=9, help="Replicas of each partition.")
    ] = 3
    rate: Annotated[float, typer.Option("--rate", min=1, help="Records per second, by all clients.")] = 200
    producers: Annotated[
        int,
        typer.Option(
            "--producers", min=1, max=64, help="Producers, each with eight sends under way, or one transaction."
        ),
    ] = 2
    consumers: Annotated[
        int | None,
        typer.Option(
            "--consumers",
            min=1,
            max=64,
            help="Consumers. Default: 2, as members of a group 4, with transactions 2.",
        ),
    ] = None
    crash_interval: Annotated[
        str, typer.Option("--crash-interval", metavar="TIME", help="A client crashes about so often; 0s: never.")
    ] = "30s"
    producer_settings: Annotated[
        Pairs, typer.Option("--producer", metavar="KEY=VALUE", help="A setting of the producers. May be repeated.")
    ] = None
    consumer_settings: Annotated[
        Pairs, typer.Option("--consumer", metavar="KEY=VALUE", help="A setting of the consumers. May be repeated.")
    ] = None
    topic_settings: Annotated[
        Pairs, typer.Option("--topic", metavar="KEY=VALUE", help="A setting of the topics. May be repeated.")
    ] = None


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The settings of the cluster, the address of an existing one, and the client library."""

    settings: Annotated[
        Pairs, typer.Option("--set", "-X", metavar="KEY=VALUE", help="A setting of the servers. May be repeated.")
    ] = None
    bootstrap_servers: Annotated[
        str,
        typer.Option(
            "--bootstrap-servers",
            "-b",
            metavar="HOST:PORT,...",
            help="The cluster, for the drivers kubernetes and none.",
        ),
    ] = ""
    client: Annotated[
        str,
        typer.Option(
            "--client",
            help="Whose producers and consumers work: tidelog, over gRPC, or confluent-kafka, over Kafka's protocol.",
        ),
    ] = "tidelog"
    kafka_bootstrap_servers: Annotated[
        str,
        typer.Option(
            "--kafka-bootstrap-servers",
            metavar="HOST:PORT,...",
            help="The nodes' Kafka listeners, for confluent-kafka with the drivers kubernetes and none.",
        ),
    ] = ""
    namespace: Annotated[str, typer.Option("--namespace", help="The namespace of the pods, for kubernetes.")] = (
        "default"
    )
    selector: Annotated[str, typer.Option("--selector", help="The label selector of the pods.")] = (
        "app.kubernetes.io/name=tidelog"
    )
    context: Annotated[str, typer.Option("--context", help="The context of kubectl. Default: its current one.")] = ""
    image: Annotated[
        str, typer.Option("--image", help="An image with sh, iptables and tc, for partition and delay in pods.")
    ] = "nicolaka/netshoot"
    disk_size: Annotated[
        int, typer.Option("--disk-size", min=64, metavar="MIB", help="The disks of disk-full, in memory.")
    ] = 512
    secure: Annotated[
        bool,
        typer.Option("--secure", help="Encrypt and authenticate all connections of the cluster, as tidelog dev does."),
    ] = False
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Keep the cluster's data also when nothing was found.")
    ] = False
