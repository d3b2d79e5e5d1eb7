"""The assignment of replicas to a broker's log directories, as the broker reports it (KIP-858).

The broker decides where its replicas are; the controller only needs to know, in order to elect another leader when a
directory fails. An assignment to a directory that is offline or lost triggers that election. An assignment to an online
directory may make a replica eligible again and so give a partition a leader. A replica that moves to another directory
while its own is offline is new and empty: with ELR it leaves the ELR and the ISR (KIP-966), unless the broker reports
that a lost replica has kept its log.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import LOST_DIRECTORY, DirectoryId, TopicId, topic_id_text
from tidelog_foundation.requests.replicas import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryAssignmentResult,
    DirectoryAssignmentTopicResult,
)
from tidelog_quorum.controller.brokers import check_broker_epoch
from tidelog_quorum.controller.elections import NOBODY, rules_of, settled
from tidelog_quorum.controller.registration import ID_BYTES
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.records import MetadataRecord
from tidelog_quorum.metadata.registrations import BrokerRegistration


def assign_replicas_to_directories(
    state: ControllerState, request: AssignReplicasToDirsRequest, now_ms: int
) -> Result[AssignReplicasToDirsResponse]:
    """Record the directories of the calling broker's replicas; each that cannot be recorded gets its own error.

    Raises:
        TidelogError: STALE_BROKER_EPOCH, the broker is not registered with that epoch; INVALID_REQUEST, a partition is
            named twice or an id does not have 16 bytes.
    """
    image, own = state.latest, state.own
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    _check_request(request)
    records: list[MetadataRecord] = []
    results: dict[TopicId, list[DirectoryAssignmentResult]] = {}
    for directory, keeps_log, topic_id, index in _assignments(request):
        result = results.setdefault(topic_id, [])
        try:
            records += _assign(image, own, broker, directory, keeps_log, image.topic_by_id(topic_id), topic_id, index)
            result.append(DirectoryAssignmentResult(index))
        except TidelogError as error:
            result.append(DirectoryAssignmentResult(index, error.detached()))
    topics = (DirectoryAssignmentTopicResult(topic_id, tuple(result)) for topic_id, result in results.items())
    return Result(records, AssignReplicasToDirsResponse(tuple(topics)))


def _assignments(request: AssignReplicasToDirsRequest) -> Iterator[tuple[DirectoryId, bool, TopicId, int]]:
    for directory in request.directories:
        for topic in directory.topics:
            for index in topic.partitions:
                yield directory.directory_id, directory.keeps_logs, topic.topic_id, index


def _check_request(request: AssignReplicasToDirsRequest) -> None:
    if any(len(d.directory_id) != ID_BYTES for d in request.directories):
        raise error_for(ErrorCode.INVALID_REQUEST, f"log directory ids must have {ID_BYTES} bytes")
    named = [(topic_id, index) for _, _, topic_id, index in _assignments(request)]
    if len(named) != len(set(named)):
        raise error_for(ErrorCode.INVALID_REQUEST, f"broker {request.broker_id} names a partition twice")


def _assign(
    image: MetadataImage,
    own: TopicConfig,
    broker: BrokerRegistration,
    directory: DirectoryId,
    keeps_log: bool,
    topic: TopicImage | None,
    topic_id: TopicId,
    index: int,
) -> list[MetadataRecord]:
    if topic is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic of the id {topic_id_text(topic_id)}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic.name}-{index}")
    if broker.broker_id not in partition.replicas:
        text = f"broker {broker.broker_id} is no replica of {topic.name}-{index}: {partition.replicas}"
        raise error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
    present = partition.directory_of(broker.broker_id)
    if present == directory:
        return []
    is_whole = broker.has_online(present) or (present == LOST_DIRECTORY and keeps_log)
    change = settled(
        image.brokers,
        rules_of(image, topic.name, own),
        topic_id,
        index,
        partition,
        unclean_shutdown=NOBODY if is_whole else frozenset({broker.broker_id}),
        directories={broker.broker_id: directory},
    )
    return [] if change is None else [change]
