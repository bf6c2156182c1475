"""What ``barnabas partitions``, ``nodes`` and ``coordinators`` do: replicas and leaders."""
