"""What people type: the barnabas command and the development cluster."""
