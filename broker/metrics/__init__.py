"""What a node tells about itself: Prometheus' text over HTTP (docs/operations.md, Metrics)."""
