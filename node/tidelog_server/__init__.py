"""A server with the roles of ``process.roles``: a node, a controller, or both in one process."""
