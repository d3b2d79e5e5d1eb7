"""``tidelog-operator``: runs the operator for one namespace, until it gets SIGTERM."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path

import kopf

from tidelog_foundation.config.endpoints import parse_address
from tidelog_foundation.errors import ConfigError
from tidelog_operator.handlers import Handlers
from tidelog_operator.sources import DEFAULT_FOLDER, read_sources


def main(arguments: list[str] | None = None) -> None:
    """Run the operator."""
    parser = argparse.ArgumentParser(prog="tidelog-operator", description=__doc__)
    parser.add_argument("--namespace", required=True, help="the namespace whose resources it reconciles")
    parser.add_argument("--image", required=True, help="the image of clusters whose resource names none")
    parser.add_argument(
        "--manifests",
        type=Path,
        default=Path(os.environ.get("TIDELOG_MANIFESTS", DEFAULT_FOLDER)),
        help="the folder with the manifests of the release, as deploy/k8s",
    )
    parser.add_argument("--liveness", default="http://0.0.0.0:8080/healthz", help="the address of the health check")
    parser.add_argument("--metrics", type=_address, help="serve metrics to Prometheus at this HOST:PORT")
    parser.add_argument(
        "--rack-service-account", help="the service account of nodes that read the labels of their machine"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for noisy in ("kopf", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    registry = kopf.OperatorRegistry()
    Handlers(
        options.namespace, read_sources(options.manifests), options.image, options.metrics, options.rack_service_account
    ).register(registry)
    kopf.run(registry=registry, namespaces=[options.namespace], standalone=True, liveness_endpoint=options.liveness)


def _address(text: str) -> tuple[str, int]:
    try:
        return parse_address(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(error.message) from error


if __name__ == "__main__":
    main()
