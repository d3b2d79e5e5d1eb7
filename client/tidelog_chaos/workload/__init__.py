"""The clients' workloads during a run: those of Jepsen's tests of Kafka, with assigned partitions and with a group,
transactions, and a query of Spark that copies.
"""

from tidelog_chaos.workload.library import Library, load_library
from tidelog_chaos.workload.observer import OFFSETS_TOPIC, STATE_TOPIC
from tidelog_chaos.workload.settings import WorkloadSettings, check_clients
from tidelog_chaos.workload.spark import SparkWorkload
from tidelog_chaos.workload.subscribe import SubscribeWorkload
from tidelog_chaos.workload.transactions import TransactionsWorkload
from tidelog_chaos.workload.workload import QueueWorkload, Workload
