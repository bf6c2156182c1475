"""What a node tells about itself: Prometheus' text over HTTP (docs/metrics.md)."""
