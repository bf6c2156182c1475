"""Transaction markers: sent by coordinators, written by the leaders of partitions."""
