"""The parts of the pytest plugin; each is imported only where it is asked for."""
