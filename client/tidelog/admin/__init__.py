"""The admin client, with confluent-kafka's API."""
