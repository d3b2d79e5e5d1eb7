"""One file per API: functions of a request and the node's context that return the response."""

from tidelog_node.handlers.acls import create_acls, delete_acls, describe_acls
from tidelog_node.handlers.client_quotas import alter_client_quotas, describe_client_quotas
from tidelog_node.handlers.configs import describe_configs, incremental_alter_configs, topic_settings
from tidelog_node.handlers.context import AdminController, NodeContext, change_quorum, forward
from tidelog_node.handlers.fetch import begin_fetch
from tidelog_node.handlers.links import (
    alter_cluster_link,
    alter_mirror_topics,
    create_cluster_link,
    create_mirror_topic,
    delete_cluster_link,
    describe_mirror_topics,
    list_cluster_links,
)
from tidelog_node.handlers.log_dirs import alter_replica_log_dirs, describe_log_dirs
from tidelog_node.handlers.offsets import delete_records, list_offsets, offset_for_leader_epoch
from tidelog_node.handlers.process import describe_process
from tidelog_node.handlers.produce import (
    MAX_PRODUCE_ELEMENTS,
    PartitionOutcome,
    PendingProduce,
    TopicOutcome,
    begin_produce,
    partition_of_single,
    refuse_produce,
    single_outcome,
    take_turn,
    try_begin_produce,
    try_begin_single,
)
from tidelog_node.handlers.producers import describe_producers, init_producer_id
from tidelog_node.handlers.scram import alter_user_scram_credentials, describe_user_scram_credentials
from tidelog_node.handlers.telemetry import get_telemetry_subscriptions, push_telemetry
from tidelog_node.handlers.topics import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_topics,
    get_metadata,
    list_topics,
)
from tidelog_node.handlers.transaction_markers import write_txn_markers
from tidelog_node.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    list_transactions,
)
