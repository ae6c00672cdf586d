"""`python -m carso` is the command `carso`."""

from carso.cli.main import main

if __name__ == "__main__":
    main()
