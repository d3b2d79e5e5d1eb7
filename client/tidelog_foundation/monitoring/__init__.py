"""The monitoring port of a process: metrics, health and diagnostics over HTTP."""
