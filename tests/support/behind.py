"""Puts another environment's packages behind those of the environment that runs this: `python behind.py ENVIRONMENT`."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path


def main(environment: Path) -> None:
    """From the next start on. What is installed here is found first; the other's editable installs work too."""
    (packages,) = environment.resolve().glob("lib/python*/site-packages")
    here = Path(sysconfig.get_path("purelib"))
    here.joinpath("behind.pth").write_text(f"import site; site.addsitedir({str(packages)!r})\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
