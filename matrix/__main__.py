"""`python -m matrix`: the command, without its script on PATH."""

from matrix.cli import main

if __name__ == "__main__":
    main()
