"""Datagen: a source of random records, with the settings of the connector of this name."""
