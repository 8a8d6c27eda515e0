"""A model repository in small: enough of one for its pull request to fail as real ones do."""
