"""Consumer groups of the new protocol (KIP-848): who gets which partition, computed here."""
