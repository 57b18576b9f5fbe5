"""`python -m graphode`: the command line."""

from graphode.cli import main

if __name__ == "__main__":
    main()
