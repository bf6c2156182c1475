"""What ``barnabas offsets migrate`` runs."""
