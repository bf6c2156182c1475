"""What we claim, measured; side by side with Apache Kafka where it can be fetched."""
