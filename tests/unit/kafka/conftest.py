"""The nodes in one process of ``tests/unit/node``, for the APIs that need real partitions."""

from unit.node.conftest import cluster_of, make_batch, make_produce_request, replace_method, wait_for

__all__ = ["cluster_of", "make_batch", "make_produce_request", "replace_method", "wait_for"]
