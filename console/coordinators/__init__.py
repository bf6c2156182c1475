"""What ``barnabas coordinators`` does: where groups and transactions are kept, and by whom."""
