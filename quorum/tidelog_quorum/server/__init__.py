"""A controller's process: configuration, gRPC services, and the shell around controller and Raft."""
