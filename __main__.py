"""`python -m keyorder`: the same as the `keyorder` command."""

from keyorder.connector.cli.main import main

if __name__ == "__main__":
    main()
