"""Changes from the browser: planned, shown, applied, verified, and taken back."""
