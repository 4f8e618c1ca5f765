"""Connection settings of the command line: Java's files, and secrets that stay secret."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from keyorder.connector.cli.connect import _connector
from keyorder.connector.cli.connecting import Connection, connection_options, is_secret, pairs, read_properties
from keyorder.partitioner.errors import ConfigError


def settings_of(*words: str) -> dict[str, str]:
    """What a command gets from these words."""
    found: list[Connection] = []

    @click.command()
    @connection_options(timeout=7)
    def probe(connection: Connection) -> None:
        found.append(connection)

    result = CliRunner().invoke(probe, ["--bootstrap-server", "b:1", *words])
    if result.exception is not None:
        raise result.exception
    assert found[0].timeout == 7
    return dict(found[0].config)


def test_a_properties_file_is_read_as_java_reads_it() -> None:
    """Comments, all three separators, continued lines and escapes."""
    text = "# a\n! b\n\na=1\nb : 2\nc 3\nd = x\\\n    y\ne\\=f=\\u0041\\t\\\\\ng=\n  h = spaces inside \n"

    assert read_properties(text) == {
        "a": "1", "b": "2", "c": "3", "d": "xy", "e=f": "A\t\\", "g": "", "h": "spaces inside",
    }  # fmt: skip


def test_a_property_wins_over_the_file(tmp_path: Path) -> None:
    """The file gives what --command-property does not."""
    file = tmp_path / "f"
    file.write_text("security.protocol=SSL\nssl.ca.location=/file.pem\n")

    found = settings_of("--command-config", str(file), "--command-property", "ssl.ca.location=/other.pem")
    assert found == {
        "security.protocol": "SSL",
        "ssl.ca.location": "/other.pem",
        "client.id": "keyorder-cli",
        "bootstrap.servers": "b:1",
    }


def test_a_jaas_line_becomes_a_user_and_a_password() -> None:
    """Java keeps both in one line; quotes inside the password survive."""
    found = settings_of("--command-property", 'sasl.jaas.config=X required username="u" password="p\\"w";')

    assert (found["sasl.username"], found["sasl.password"]) == ("u", 'p"w')
    assert "sasl.jaas.config" not in found


@pytest.mark.parametrize("setting", ["ssl.truststore.location=/x.jks", "sasl.jaas.config=Krb5 required;"])
def test_what_only_java_understands_is_refused_with_the_way_out(setting: str) -> None:
    """The text names the setting and what to give instead."""
    with pytest.raises(ConfigError, match=r"give (ssl\.ca\.location|sasl\.username)"):
        settings_of("--command-property", setting)


def test_a_setting_that_the_library_refuses_is_named_but_no_secret_is_shown() -> None:
    """The library's text is passed on unless it repeats a secret."""
    with pytest.raises(ConfigError, match=r"sasl\.pasword"):
        Connection({"bootstrap.servers": "b:1", "sasl.pasword": "x"}, 1).admin_client()
    with pytest.raises(ConfigError) as raised:
        Connection(
            {"bootstrap.servers": "b:1", "security.protocol": "geheim", "sasl.password": "geheim"}, 1
        ).admin_client()
    assert "geheim" not in str(raised.value)


def test_a_word_without_a_value_is_not_repeated() -> None:
    """Who writes a password after a colon does not find it in a log."""
    with pytest.raises(click.UsageError) as raised:
        pairs(["a=1", "sasl.password:geheim"], "--command-property")

    assert raised.value.message == "--command-property number 2 is not of the form NAME=VALUE."


def test_names_of_secrets_are_known() -> None:
    """Passwords, keys and tokens, however they are called."""
    names = [
        "sasl.password",
        "ssl.key.pem",
        "sasl.oauthbearer.client.secret",
        "sasl.jaas.config",
        "ssl.keystore.password",
        "ssl.keystore.key",
    ]

    assert [name for name in names if not is_secret(name)] == []
    assert not is_secret("sasl.username")


def test_a_mark_of_byte_order_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    """Editors on Windows put it before the text: security.protocol would not be applied, and the command go on in plain."""
    file = tmp_path / "f"
    file.write_bytes(b"\xef\xbb\xbfsecurity.protocol=SSL\nssl.ca.location=/file.pem\n")
    found = settings_of("--command-config", str(file))
    assert found["security.protocol"] == "SSL"
    assert read_properties("\ufeff# a comment\na=\ufeff1") == {"a": "\ufeff1"}


def test_a_connectors_json_may_begin_with_such_a_mark(tmp_path: Path) -> None:
    """As its properties may."""
    file = tmp_path / "c.json"
    file.write_bytes(b'\xef\xbb\xbf{"name": "c", "tasks.max": "1"}')
    assert _connector(file) == {"name": "c", "tasks.max": "1"}
