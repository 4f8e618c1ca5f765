"""What SQLAlchemy and the drivers raise: whether it is of a record's values, and how it may be shown."""

from __future__ import annotations

import re
import sqlite3

import sqlalchemy as sa

from ..api.errors import DataError

_DATA_EXCEPTION = "22"  # the class of SQLSTATE
_REFUSED = ("42804", "42846", "54000")  # PostgreSQL's datatype_mismatch, cannot_coerce, program_limit_exceeded


def is_of_values(error: Exception) -> bool:
    """Whether SQLAlchemy, the driver or the database has refused a record's values, as it will each time."""
    if type(error) is sa.exc.StatementError:  # of SQLAlchemy's own types; what the driver raises are its subclasses
        return True
    if not isinstance(error, sa.exc.DBAPIError):
        return isinstance(error, (DataError, OverflowError, UnicodeError))
    if isinstance(error.orig, sqlite3.Error) and str(error.orig).startswith("Error binding parameter"):
        return True  # of a Python type that SQLite has not: InterfaceError before Python 3.11
    unfit = isinstance(error, (sa.exc.DataError, sa.exc.IntegrityError))
    return unfit or getattr(error.orig, "sqlstate", None) in _REFUSED


def short(error: Exception) -> str:
    """The driver's first line, without the statement and its values, which may be secret."""
    origin = getattr(error, "orig", None) or error
    if type(error) is sa.exc.StatementError:  # Python quotes the value that is refused
        return f"a value is not of its column's type ({type(origin).__name__})"
    said = str(origin)
    if (getattr(origin, "sqlstate", None) or "").startswith(_DATA_EXCEPTION):
        # PostgreSQL quotes the value as it came: it may have quotation marks and ends of lines of its own.
        said = re.sub(r'".*"|".*', '"..."', said, flags=re.DOTALL)
    return re.sub(r"\s+", " ", said.splitlines()[0] if said else type(origin).__name__)[:300]
