"""`matrix doctor`: what of this host and repository would stop a run, each with what to do."""
