"""A run from its spec to its record: prepares attempts, follows them, judges how they ended."""
