"""The parts that client, node and controllers share: errors, ids, record batches, configuration and gRPC transport.

The package imports nothing of the others but the generated code of ``tidelog.v1``. Applications use ``tidelog``.
"""

from os import environ as _environ

# gRPC's fork handlers start its threads again in a child that is about to become another program, such as the JVM that
# PySpark starts: where the child's files are closed by then, they abort it (grpc/grpc issue 43055). gRPC reads the
# variable when it is first imported. A program that forks without exec and needs the handlers sets it before.
_environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
