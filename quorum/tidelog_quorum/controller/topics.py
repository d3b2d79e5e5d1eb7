"""Creation and deletion of topics: all of Kafka's checks, then the records of all topics as one entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from tidelog_foundation.config.changes import check_value_size
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import (
    NO_BROKER,
    REQUEST_ID_SIZE,
    BrokerId,
    TopicId,
    is_topic_of_request,
    topic_id_of_request,
)
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_foundation.requests.topics import (
    NO_TOPIC_ID,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tidelog_foundation.topic_names import collision_key, validate_topic_name
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.mutation_quotas import MutationQuota
from tidelog_quorum.controller.placement import Replicas, place_replicas
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.metadata.cordons import cordoned_among
from tidelog_quorum.metadata.description import CLUSTER_METADATA_TOPIC
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tidelog_quorum.metadata.topic_config import cluster_topic_defaults, override_topic_config

MAX_PARTITIONS_PER_REQUEST = 10_000
MAX_TOPICS_PER_REQUEST = 10_000
_MAX_REPLICATION_FACTOR = 32_767
_DEFAULT = -1


def create_topics(state: ControllerState, request: CreateTopicsRequest, now_ms: int) -> Result[CreateTopicsResponse]:
    """Create the topics that can be created; each of the others gets its own error.

    Topics that an earlier attempt of the same request created get that attempt's answer, which may have been lost with
    the leadership or the connection.

    Raises:
        TidelogError: POLICY_VIOLATION, the request has too many topics or partitions; INVALID_REQUEST, its id has the
            wrong length.
    """
    image = state.latest
    _check_size(state.config, request)
    _check_request_id(request)
    counts = Counter(t.name for t in request.topics)
    creation = _Creation(image, state, quota := state.mutation_quota(request.quota_client, now_ms))
    # Names collide only with names of the request: no need to look at the others.
    wanted = {collision_key(t.name) for t in request.topics}
    taken = {key: name for name in image.topics if (key := collision_key(name)) in wanted}
    records: list[MetadataRecord] = []
    results: dict[str, CreatableTopicResult] = {}
    for topic in request.topics:
        earlier = image.topics.get(topic.name)
        if earlier is not None and is_topic_of_request(earlier.topic_id, request.request_id):
            results[topic.name] = _created_earlier(earlier)
            continue
        try:
            _check_name(topic.name, counts[topic.name], taken)
            created = creation.create(topic, topic_id_of_request(request.request_id, next(state.topic_ids)))
        except TidelogError as error:
            results[topic.name] = CreatableTopicResult(name=topic.name, error=error.detached())
            continue
        taken[collision_key(topic.name)] = topic.name
        results[topic.name] = _created(topic.name, created, request.validate_only)
        records += created
    response = CreateTopicsResponse(tuple(results.values()), quota.throttle_time_ms)
    return Result([] if request.validate_only else records, response)


def delete_topics(state: ControllerState, request: DeleteTopicsRequest, now_ms: int) -> Result[DeleteTopicsResponse]:
    """Delete the topics that exist; each of the others gets its own error. An unknown id is UNKNOWN_TOPIC_ID.

    Raises:
        TidelogError: TOPIC_DELETION_DISABLED, ``delete.topic.enable`` is false; POLICY_VIOLATION, the request names too
            many topics.
    """
    check_topic_count(len(request.topic_names) + len(request.topic_ids))
    if not state.config.delete_topic_enable:
        raise error_for(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false: no topic can be deleted")
    image, names, ids = state.latest, Counter(request.topic_names), Counter(request.topic_ids)
    found: dict[TopicId, str] = {}
    results = []
    for topic_id, count in ids.items():
        try:
            found[topic_id] = _name_to_delete(image, topic_id, count)
        except TidelogError as error:
            results.append(DeletableTopicResult(topic_id=topic_id, error=error.detached()))
    for name, count in names.items():
        try:
            found[_id_to_delete(image, name, count, found, ids)] = name
        except TidelogError as error:
            results.append(DeletableTopicResult(name=name, error=error.detached()))
    quota = state.mutation_quota(request.quota_client, now_ms)
    deleted = []
    for topic_id, name in found.items():
        try:
            quota.take(len(image.topics[name].partitions))
        except TidelogError as error:
            results.append(DeletableTopicResult(name=name, topic_id=topic_id, error=error.detached()))
            continue
        results.append(DeletableTopicResult(name=name, topic_id=topic_id))
        deleted.append(RemoveTopicRecord(topic_id))
    return Result(deleted, DeleteTopicsResponse(tuple(results), quota.throttle_time_ms))


def topic_records(
    state: ControllerState, topic: CreatableTopic, topic_id: TopicId, now_ms: int
) -> list[MetadataRecord]:
    """Return the records of a topic that another request creates than :func:`create_topics`.

    Raises:
        TidelogError: The topic cannot be created.
    """
    image = state.latest
    _check_size(state.config, CreateTopicsRequest(topics=(topic,)))
    taken = {key: name for name in image.topics if (key := collision_key(name)) == collision_key(topic.name)}
    _check_name(topic.name, 1, taken)
    return _Creation(image, state, state.mutation_quota(None, now_ms)).create(topic, topic_id)


def check_topic_count(count: int) -> None:
    """Refuse a request that names too many topics with POLICY_VIOLATION."""
    if count > MAX_TOPICS_PER_REQUEST:
        text = f"{count} topics in one request, more than {MAX_TOPICS_PER_REQUEST}"
        raise error_for(ErrorCode.POLICY_VIOLATION, text)


def _check_size(config: ControllerConfig, request: CreateTopicsRequest) -> None:
    check_topic_count(len(request.topics))

    def partitions_of(topic: CreatableTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        return config.num_partitions if topic.num_partitions == _DEFAULT else max(0, topic.num_partitions)

    total = sum(partitions_of(t) for t in request.topics)
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise error_for(
            ErrorCode.POLICY_VIOLATION, f"{total} partitions in one request, more than {MAX_PARTITIONS_PER_REQUEST}"
        )


def _check_request_id(request: CreateTopicsRequest) -> None:
    if len(request.request_id) not in (0, REQUEST_ID_SIZE):
        text = f"a request's id has {REQUEST_ID_SIZE} bytes, not {len(request.request_id)}"
        raise error_for(ErrorCode.INVALID_REQUEST, text)


def _check_name(name: str, count: int, taken: dict[str, str]) -> None:
    if count > 1:
        raise error_for(ErrorCode.INVALID_REQUEST, f"topic {name!r} is named {count} times")
    validate_topic_name(name)
    if name == CLUSTER_METADATA_TOPIC:
        raise error_for(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    other = taken.get(collision_key(name))
    if other == name:
        raise error_for(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if other is not None:
        raise error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")


def _name_to_delete(image: MetadataImage, topic_id: TopicId, count: int) -> str:
    if count > 1:
        raise error_for(ErrorCode.INVALID_REQUEST, f"the topic id {topic_id.hex()} is named {count} times")
    name = image.topic_names.get(topic_id)
    if name is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic of the id {topic_id.hex()}")
    return name


def _id_to_delete(
    image: MetadataImage, name: str, count: int, found: dict[TopicId, str], ids: Container[TopicId]
) -> TopicId:
    if count > 1:
        raise error_for(ErrorCode.INVALID_REQUEST, f"topic {name!r} is named {count} times")
    topic = image.topics.get(name)
    if topic is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    if topic.topic_id in ids:
        # Only its name gets an answer then, and the topic stays.
        found.pop(topic.topic_id, None)
        raise error_for(ErrorCode.INVALID_REQUEST, f"topic {name!r} is named by its id, too")
    return topic.topic_id


class _Creation:
    """The shared state of one request's topics. The load grows with each, so that they are spread together."""

    def __init__(self, image: MetadataImage, state: ControllerState, quota: MutationQuota) -> None:
        self._image = image
        self._quota = quota
        self._config = state.config
        self._topic_config = cluster_topic_defaults(image, state.own)
        state.load.follow(image)
        self._load = state.load.copy()

    def create(self, topic: CreatableTopic, topic_id: TopicId) -> list[MetadataRecord]:
        """Return the records of a topic, or raise TidelogError if it cannot be created."""
        settings = self._settings(topic)
        placements = _manual_placements(self._image, topic) if topic.assignments else self._automatic(topic)
        self._quota.take(len(placements))
        records: list[MetadataRecord] = [TopicRecord(topic.name, topic_id)]
        records += [ConfigRecord(ConfigResourceType.TOPIC, topic.name, n, v) for n, v in settings.items()]
        records += [new_partition(self._image, topic.name, topic_id, i, r) for i, r in enumerate(placements)]
        self._load.add(placements)
        return records

    def _settings(self, topic: CreatableTopic) -> dict[str, str]:
        settings = {c.name: c.value for c in topic.configs}
        if len(settings) != len(topic.configs):
            raise error_for(ErrorCode.INVALID_CONFIG, f"a configuration of topic {topic.name!r} is named twice")
        for name, value in settings.items():
            check_value_size(name, value)
        override_topic_config(settings, self._topic_config)
        return settings

    def _automatic(self, topic: CreatableTopic) -> list[Replicas]:
        config = self._config
        count = config.num_partitions if topic.num_partitions == _DEFAULT else topic.num_partitions
        is_default = topic.replication_factor == _DEFAULT
        factor = config.default_replication_factor if is_default else topic.replication_factor
        if count < 1:
            raise error_for(
                ErrorCode.INVALID_PARTITIONS, f"{count} partitions for topic {topic.name!r}: must be at least 1, or -1"
            )
        if not 1 <= factor <= _MAX_REPLICATION_FACTOR:
            raise error_for(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {factor} for topic {topic.name!r}: must be from 1 to {_MAX_REPLICATION_FACTOR}, "
                f"or -1",
            )
        return place_replicas(self._image, count, factor, load=self._load)


def new_partition(
    image: MetadataImage, name: str, topic_id: TopicId, index: int, replicas: Replicas
) -> PartitionRecord:
    """Return the record of a new partition, led by the first replica that may lead.

    Raises:
        TidelogError: INVALID_REPLICA_ASSIGNMENT, none of them may lead.
    """
    isr = tuple(b for b in replicas if image.brokers[b].is_active)
    if not isr:
        raise error_for(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"all replicas of {name}-{index} are fenced or shutting down: {list(replicas)}",
        )
    directories = tuple(image.brokers[b].default_directory for b in replicas)
    return PartitionRecord(topic_id, index, replicas=replicas, isr=isr, leader=isr[0], directories=directories)


def check_assignment(image: MetadataImage, name: str, index: int, replicas: Sequence[int], factor: int) -> Replicas:
    """Return the replicas that a request names for one partition.

    Raises:
        TidelogError: INVALID_REPLICA_ASSIGNMENT, there is none, one is unregistered, cordoned or named twice, or the
            number is wrong.
    """
    unknown = [b for b in replicas if b not in image.brokers]
    if not replicas:
        raise _bad_assignment(name, f"partition {index} has no replica")
    if unknown:
        raise _bad_assignment(name, f"partition {index} names brokers that are not registered: {unknown}")
    if cordoned := cordoned_among(image, map(BrokerId, replicas)):
        raise _bad_assignment(name, f"partition {index} names brokers that are cordoned: {cordoned}")
    if len(set(replicas)) != len(replicas):
        raise _bad_assignment(name, f"partition {index} names a broker twice: {list(replicas)}")
    if len(replicas) != factor:
        raise _bad_assignment(name, f"partition {index} has {len(replicas)} replicas, partition 0 has {factor}")
    return tuple(BrokerId(b) for b in replicas)


def _manual_placements(image: MetadataImage, topic: CreatableTopic) -> list[Replicas]:
    if topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"topic {topic.name!r} has a manual assignment: its partitions and replication factor must be -1, "
            f"not {topic.num_partitions} and {topic.replication_factor}",
        )
    by_index = {a.partition_index: a.broker_ids for a in topic.assignments}
    if sorted(by_index) != list(range(len(topic.assignments))):
        raise _bad_assignment(topic.name, f"the partitions {sorted(by_index)} are not 0, 1, 2, ... without a gap")
    factor = len(by_index[0])
    return [check_assignment(image, topic.name, i, by_index[i], factor) for i in sorted(by_index)]


def _created(name: str, records: list[MetadataRecord], validate_only: bool) -> CreatableTopicResult:
    partitions = [r for r in records if isinstance(r, PartitionRecord)]
    assert all(p.leader != NO_BROKER for p in partitions)
    return CreatableTopicResult(
        name=name,
        topic_id=NO_TOPIC_ID if validate_only else partitions[0].topic_id,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
    )


def _created_earlier(topic: TopicImage) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
    )


def _bad_assignment(name: str, problem: str) -> TidelogError:
    return error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"assignment of topic {name!r}: {problem}")
