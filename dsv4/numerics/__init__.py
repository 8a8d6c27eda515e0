"""Which bits come out: the environment Paddle is loaded in, and the dtype policy."""
