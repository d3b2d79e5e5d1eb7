"""Output of the commands: tables, JSON, errors, log lines."""
