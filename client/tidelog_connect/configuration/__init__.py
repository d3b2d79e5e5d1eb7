"""Definitions of settings by Kafka's rules, and the validation of configurations as Connect's REST API reports it."""
