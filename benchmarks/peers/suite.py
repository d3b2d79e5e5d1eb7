"""The sequence of the comparison, and the clusters that run in each part."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.machine import facts
from benchmarks.options import Options
from benchmarks.peers import logins, tls, transactions, work
from benchmarks.peers.abuse import abuse
from benchmarks.peers.apache_kafka import ApacheKafka
from benchmarks.peers.clusters import Clusters
from benchmarks.peers.connectors import SETTINGS, connectors
from benchmarks.peers.links import links
from benchmarks.peers.maven import find_installation
from benchmarks.peers.mirrors import mirrors
from benchmarks.peers.open_transactions import open_transactions
from benchmarks.peers.peer import PAIR, SMALL, WHOLE, Peer, Size
from benchmarks.peers.requests import requests, requests_to_a_machine
from benchmarks.peers.scale import SCALE_PARTS
from benchmarks.peers.tidelog_cluster import TidelogCluster
from benchmarks.result import Result
from benchmarks.table import make_console, print_results, write_results

RESULTS = Path(__file__).parent.parent / "results" / "kafka.json"

_TIDELOG, _KAFKA = "tidelog", "kafka"

Part = Callable[[Clusters], list[Result]]


def _spark(clusters: Clusters) -> list[Result]:
    # The import is local: the other parts, and the page of results, would load PySpark.
    from benchmarks.peers.spark import spark

    return spark(clusters)


_STOPPED_PARTS: dict[str, Part] = {"cold-start": work.cold_starts}
_WHOLE_PARTS: dict[str, Part] = {
    "idle": work.idle,
    "latency": work.synchronous_latency,
    "requests": requests,
    "transactions": transactions.commits,
    "produce": partial(work.produce, at_least=0.5),
    "produce-transactions": transactions.produce_in_transactions,
    "consume": work.consume_from_cache,
    "consume-transactions": transactions.consume_transactions,
    "memory": partial(work.memory, when="after the load"),
    "failover": work.failover,
}
_SMALL_PARTS: dict[str, Part] = {
    "requests-one": requests,
    "produce-one": partial(work.produce, at_least=0.6),
    "links": links,
    "abuse": abuse,
    "spark": _spark,
}
_FRESH_PARTS: dict[str, Part] = {"open-transactions": open_transactions}
"""The parts that need clusters which have done nothing else."""
_TLS, _LOGINS, _MIRRORS, _CONNECTORS, _MACHINE = "tls", "logins", "mirrors", "connectors", "requests-machine"
"""The parts with clusters of their own: with SSL, with SASL_SSL, with mirrors between them, with connectors, and with
two nodes of Tidelog next to one broker of Kafka."""
_OWN_PARTS = (_TLS, _LOGINS, _MIRRORS, _CONNECTORS, _MACHINE)
_USUAL_PARTS = (*_STOPPED_PARTS, *_WHOLE_PARTS, *_FRESH_PARTS, *_SMALL_PARTS, *_OWN_PARTS)
PARTS = (*_USUAL_PARTS, *SCALE_PARTS)
_HELP = f"these alone: {', '.join(_USUAL_PARTS)}; or any of {', '.join(SCALE_PARTS)}, which take longer"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the requested parts and print the table. The JSON file is written when everything was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Measure next to Apache Kafka.")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=_HELP)
    parser.add_argument("--alone", choices=(_TIDELOG, _KAFKA), help="one cluster without the other: no ratios")
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds: rough figures in 10 minutes")
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="the JSON file (default: benchmarks/results/kafka.json)"
    )
    parsed = parser.parse_args(arguments)
    console = make_console()
    groups: list[list[Result]] = []
    try:
        with console.status("preparing") as status:
            options = Options(quick=parsed.quick, say=status.update)
            for name, results in measure(options, parsed.only or _USUAL_PARTS, parsed.alone):
                groups.append(results)
                console.print(f"{name}: {len(results)} results")
    except Exception:  # noqa: BLE001 what was measured is still worth showing
        console.print_exception(extra_lines=0, max_frames=8)
        print_results(console, groups)
        return 1
    print_results(console, groups)
    write_results(parsed.output, facts(quick=parsed.quick), [result for results in groups for result in results])
    return 0


def measure(options: Options, parts: Sequence[str], alone: str | None) -> Iterator[tuple[str, list[Result]]]:
    """Yield the results of each part. Except in cold starts, both clusters of a size run at the same time."""
    if any(part in _STOPPED_PARTS or part in _WHOLE_PARTS for part in parts):
        with _clusters(options, WHOLE, alone) as clusters:
            yield from _run(clusters, _STOPPED_PARTS, parts)
            if any(part in _WHOLE_PARTS for part in parts):
                clusters.start()
                yield from _run(clusters, _WHOLE_PARTS, parts)
    for size, of_size in ((WHOLE, _FRESH_PARTS), (SMALL, _SMALL_PARTS)):
        if any(part in of_size for part in parts):
            with _clusters(options, size, alone) as clusters:
                clusters.start()
                yield from _run(clusters, of_size, parts)
    for name, own in SCALE_PARTS.items():
        if name in parts:
            with _clusters(options, own.size, alone, own.settings, own.settings) as clusters:
                if own.is_started:
                    clusters.start()
                yield name, own.run(clusters)
    if _MACHINE in parts:
        with _clusters(options, SMALL, alone, our_size=PAIR) as clusters:
            clusters.start()
            yield _MACHINE, requests_to_a_machine(clusters)
    if _TLS in parts:
        yield _TLS, _secured(options, alone, WHOLE, tls.settings, tls.produce_and_consume)
    if _LOGINS in parts:
        yield _LOGINS, _secured(options, alone, SMALL, logins.settings, logins.logins)
    if _MIRRORS in parts and alone is None:
        with _clusters(options, SMALL, None) as clusters:
            clusters.start()
            yield _MIRRORS, mirrors(clusters)
    if _CONNECTORS in parts and alone is None:
        with _clusters(options, SMALL, None, SETTINGS) as clusters:
            clusters.start()
            yield _CONNECTORS, connectors(clusters)


def _secured(
    options: Options,
    alone: str | None,
    size: Size,
    settings: Callable[[Path, str], Mapping[str, object]],
    part: Callable[[Clusters, Mapping[str, Path]], list[Result]],
) -> list[Result]:
    """Run a part on clusters with security, each with a folder for its certificates."""
    with options.scratch() as folder:
        ours, theirs = folder / _TIDELOG, folder / _KAFKA
        for each in (ours, theirs):
            each.mkdir()
        both = settings(ours, "GRPC:GRPC"), settings(theirs, "CONTROLLER:PLAINTEXT")
        with _clusters(options, size, alone, *both) as clusters:
            folders = (ours, theirs) if alone is None else (ours,) if alone == _TIDELOG else (theirs,)
            return part(clusters, {p.name: f for p, f in zip(clusters.peers, folders, strict=True)})


def _run(clusters: Clusters, parts: dict[str, Part], asked: Sequence[str]) -> Iterator[tuple[str, list[Result]]]:
    for name, part in parts.items():
        if name in asked:
            yield name, part(clusters)


@contextmanager
def _clusters(
    options: Options,
    size: Size,
    alone: str | None,
    ours: Mapping[str, object] | None = None,
    theirs: Mapping[str, object] | None = None,
    our_size: Size | None = None,
) -> Iterator[Clusters]:
    """Yield the prepared clusters, and end them afterwards; after an error, print their output.

    ``ours`` and ``theirs`` are settings of Tidelog and of Apache Kafka. ``our_size`` is Tidelog's if it differs.
    """
    with options.scratch() as folder:
        peers: list[Peer] = []
        if alone != _KAFKA:
            peers.append(TidelogCluster(our_size or size, ours))
        if alone != _TIDELOG:
            peers.append(ApacheKafka(find_installation(), size, folder, theirs))
        clusters = Clusters(peers, options)
        try:
            for peer in peers:
                options.say(f"preparing {peer.name}")
                peer.prepare()
            yield clusters
        except Exception as error:
            for peer in peers:
                error.add_note(peer.last_words())
            raise
        finally:
            clusters.close()
