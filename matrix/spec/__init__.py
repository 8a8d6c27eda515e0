"""What a matrix is, how it is read, expanded and selected."""
