"""The parts shared by client, node and controllers: errors, ids, record batches, configuration and gRPC transport.

It imports none of Tidelog's other packages. Applications use ``tidelog``.
"""

from os import environ as _environ

# gRPC's fork handlers restart its threads in a child that is about to exec another program, such as PySpark's JVM. If
# the child's files are closed by then, the handlers abort it (grpc/grpc issue 43055). gRPC reads the variable on its
# first import. A program that forks without exec and needs the handlers sets it earlier.
_environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
