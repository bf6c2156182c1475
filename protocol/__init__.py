"""The Kafka protocol as pure functions: bytes in, values out."""
