"""The producer: records are encoded, gathered by partition and sent to the leaders."""
