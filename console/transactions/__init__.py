"""``barnabas transactions``: transactional ids, producers of partitions, transactions that hang."""
