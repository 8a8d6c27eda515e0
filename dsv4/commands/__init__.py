"""One module per verb of `dsv4`."""
