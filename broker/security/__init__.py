"""Who may speak: authentication of connections."""
