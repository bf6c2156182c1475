"""The group coordinator and offset manager, independent of the daemon that hosts it."""
