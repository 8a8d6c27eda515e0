"""Which job next, and on which cards."""
