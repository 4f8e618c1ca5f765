"""`python -m keyorder`, and what the `keyorder` command starts: Ctrl-C ends it without a trace, also while it loads."""

from __future__ import annotations

TYPE_CHECKING = False  # see __init__.py: nothing is imported before Ctrl-C is caught
if TYPE_CHECKING:
    from typing import NoReturn


def run() -> NoReturn:
    """Run one command line and exit."""
    try:
        from keyorder.connector.cli.main import main
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    main()


if __name__ == "__main__":
    run()
