"""The authorization of produce requests over gRPC: the permitted batches, and the results of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.authorization import WRITE_TOPIC, Access
from tidelog_foundation.authorization.rules import TOPIC, TRANSACTIONAL_ID
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.records import is_transactional
from tidelog_foundation.requests.acls import AclOperation

Denials: TypeAlias = Mapping[int, TidelogError]
"""The errors of denied topics, by their position in the request."""
NONE_DENIED: Final[Denials] = {}


def permitted_batches(access: Access, request: pb.ProduceRequest) -> tuple[pb.ProduceRequest, Denials]:
    """Return a request for the topics that the caller may write to, the same one if it may write to all."""
    denied = _denials(access, request)
    if not denied:
        return request, denied
    permitted = pb.ProduceRequest(
        acks=request.acks, timeout_ms=request.timeout_ms, transaction_version=request.transaction_version
    )
    if request.HasField("transactional_id"):
        permitted.transactional_id = request.transactional_id
    permitted.topics.extend(topic for place, topic in enumerate(request.topics) if place not in denied)
    return permitted, denied


def completed_response(request: pb.ProduceRequest, response: pb.ProduceResponse, denied: Denials) -> pb.ProduceResponse:
    """Return the response to the whole request, in its order, from the one to its permitted part."""
    if not denied:
        return response
    answered, completed = iter(response.topics), pb.ProduceResponse()
    for place, topic in enumerate(request.topics):
        error = denied.get(place)
        if error is None:
            completed.topics.append(next(answered))
            continue
        results = completed.topics.add(name=topic.name)
        for item in topic.partitions:
            result = results.partitions.add(index=item.index, base_offset=-1, log_append_time_ms=-1)
            result.error.code, result.error.message = error.code.code, error.message
    return completed


def names_only(request: pb.ProduceRequest) -> pb.ProduceRequest:
    """Return a request without its records, for :func:`completed_response`."""
    names = pb.ProduceRequest()
    for topic in request.topics:
        partitions = [pb.ProducePartition(index=item.index) for item in topic.partitions]
        names.topics.add(name=topic.name, partitions=partitions)
    return names


def _denials(access: Access, request: pb.ProduceRequest) -> Denials:
    """Return the errors of denied topics. Batches of a transaction need its transactional id as well."""
    name = request.transactional_id
    is_part = bool(name) or any(is_transactional(item.records) for topic in request.topics for item in topic.partitions)
    if is_part and not (name and access.allows(AclOperation.WRITE, TRANSACTIONAL_ID, name)):
        return dict.fromkeys(range(len(request.topics)), access.denial(AclOperation.WRITE, TRANSACTIONAL_ID, name))
    denied = {}
    for place, topic in enumerate(request.topics):
        if not access.has(WRITE_TOPIC, topic.name):
            denied[place] = access.denial(AclOperation.WRITE, TOPIC, topic.name)
    return denied
