"""The interpreter and the event loop: garbage collection, thread switching, measured latency."""
