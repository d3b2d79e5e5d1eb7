"""The APIs of the listener, one module per family. Each translates between messages and handlers."""
