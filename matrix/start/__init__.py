"""A first matrix for a repository that has none: what is found in it, written down as jobs."""
