"""One file for each API: its request and its response, declared once for all versions."""
