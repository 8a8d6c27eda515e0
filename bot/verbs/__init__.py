"""One module a verb of the command `bot`."""
