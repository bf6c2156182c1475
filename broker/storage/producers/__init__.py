"""Producer state: sequence numbers, snapshots of them, and transactions not yet stable."""
