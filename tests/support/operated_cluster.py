"""The objects that the operator makes of a resource ``Tidelog``, for tests of its cores."""

from __future__ import annotations

from typing import Any

from tidelog_operator.manifests import desired_objects
from tidelog_operator.resources import CONTROLLER, NODE, parse_cluster
from tidelog_operator.sources import DEFAULT_FOLDER, read_sources

SOURCES = read_sources(DEFAULT_FOLDER)


def resource(name: str = "orders", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "shop", "uid": "u"}, "spec": spec}


def objects(
    name: str = "orders", initial: int = 3, replicas: int = 3, rack_account: str | None = None, **spec: Any
) -> list[dict[str, Any]]:
    return desired_objects(
        parse_cluster(resource(name, **spec)),
        SOURCES,
        owner_uid="u",
        image="tidelog:9",
        replicas={CONTROLLER: 3, NODE: replicas},
        initial_controllers=initial,
        rack_account=rack_account,
    )


def one(found: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (each,) = (o for o in found if o["kind"] == kind and o["metadata"]["name"].startswith(name))
    return each
