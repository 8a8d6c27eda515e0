"""One test suite cut into jobs of about equal time."""
