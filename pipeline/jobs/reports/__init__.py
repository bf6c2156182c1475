"""What a job found, as JSON and as a page with charts; and its progress while it runs."""
