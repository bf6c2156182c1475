"""Who is alive, and until when a node may answer: beacons and the leases they carry."""
