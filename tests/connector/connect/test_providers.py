"""Config providers."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest
from keyorder.connector.connect.config.configdef import ConfigDef
from keyorder.connector.connect.config.keys import Type
from keyorder.connector.connect.config.providers import Resolver
from keyorder.partitioner.errors import ConfigError


def resolver(folder: Path) -> Resolver:
    return Resolver(
        {
            "config.providers": "env,file,dir",
            "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
            "config.providers.env.param.allowlist.pattern": "APP_.*",
            "config.providers.file.class": "FileConfigProvider",
            "config.providers.file.param.allowed.paths": str(folder),
            "config.providers.dir.class": "DirectoryConfigProvider",
            "config.providers.dir.param.allowed.paths": str(folder),
        }
    )


def test_placeholders_are_resolved_and_their_values_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All three providers; text around them stays; unknown providers are left alone."""
    (tmp_path / "s.properties").write_text("user = bob\npass = file-secret\n")
    (tmp_path / "mounted").write_text("dir-secret")
    monkeypatch.setenv("APP_KEY", "env-secret")
    found = resolver(tmp_path)
    resolved = found.resolve(
        {
            "a": "x-${env:APP_KEY}-y",
            "b": f"${{file:{tmp_path}/s.properties:pass}}",
            "c": f"${{dir:{tmp_path}:mounted}}",
            "d": "${other:z}",
        }
    )
    assert resolved == {"a": "x-env-secret-y", "b": "file-secret", "c": "dir-secret", "d": "${other:z}"}
    assert found.redact("dir-secret env-secret file-secret") == "[hidden] [hidden] [hidden]"


@pytest.mark.parametrize("mounted", ["file-secret\n", " file-secret\r\n"])
def test_a_value_is_hidden_as_settings_have_it(tmp_path: Path, mounted: str) -> None:
    """They are trimmed, and a file that is mounted often ends with a newline."""
    (tmp_path / "mounted").write_text(mounted, newline="")
    found = resolver(tmp_path)
    resolved = found.resolve({"a": f"${{dir:{tmp_path}:mounted}}"})
    assert resolved == {"a": mounted.replace("\r\n", "\n")}
    value = ConfigDef().define("a", Type.STRING).parse(resolved)["a"]
    assert found.redact(f"401 for {value}, twice") == "401 for [hidden], twice"
    found.keep_secret({"db.password": " given-secret "})
    assert found.redact("with given-secret") == "with [hidden]"


@pytest.mark.parametrize(
    "secret",
    ["it's so", 'a "b" c', 'it\'s "x"\\y', "C:\\temp", "two\nlines\tor so", "pässwörd€", " it's \\so \n", "a\\'b"],
)
def test_a_value_is_hidden_as_texts_quote_it(secret: str) -> None:
    """By repr and as JSON, also inside of another text, whose quotes decide which are escaped, and quoted twice."""
    found = Resolver({})
    found.keep_secret({"db.password": secret})
    whole = [around + secret + around for around in ("", "'", '"', "'\"")]
    once = [quote(text) for text in whole for quote in (str, repr, json.dumps, in_utf8)]
    for text in [*once, *(quote(text) for text in once for quote in (repr, json.dumps))]:
        left = found.redact(text)
        assert "[hidden]" in left
        assert set(left.replace("[hidden]", "")) <= set("'\"\\n \n"), left


def in_utf8(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def of_bytes(text: str) -> str:
    return repr(text.encode())


def wholly(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def with_escaped_slashes(text: str) -> str:
    return json.dumps(text).replace("/", "\\/")


@pytest.mark.parametrize("secret", ["p/ss w\u00f6rd&=", "it's/so \u20ac", 'a "b"/c+d', "C:\\te/mp@x"])
@pytest.mark.parametrize("quote", [of_bytes, with_escaped_slashes, urllib.parse.quote, urllib.parse.quote_plus, wholly])
def test_a_value_is_hidden_as_bytes_urls_and_other_encoders_show_it(secret: str, quote: Callable[[str], str]) -> None:
    """An HTTP client's error quotes the URL, a driver's the bytes it sent, and some JSON encoders escape every slash."""
    found = Resolver({})
    found.keep_secret({"db.password": secret})
    shown = quote(f"x{secret}y")
    for text in (shown, repr(shown)):
        left = found.redact(f"no answer from {text}")
        assert "x[hidden]y" in left, left


def test_a_secret_of_several_lines_is_hidden_line_by_line() -> None:
    """A group of exceptions indents the lines of each. What frames a key is in every text about keys, so it stays."""
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END PRIVATE KEY-----\n"
    found = Resolver({})
    found.keep_secret({"ssl.key.pem": key})
    left = found.redact("".join(f"  | {line}" for line in key.splitlines(keepends=True)))
    assert "MIIE" not in left
    assert "AQEF" not in left
    assert found.redact("expected -----BEGIN PRIVATE KEY-----") == "expected -----BEGIN PRIVATE KEY-----"


def test_text_that_is_like_a_quoted_secret_stays() -> None:
    """Each form that is hidden has the whole secret in it."""
    found = Resolver({})
    found.keep_secret({"db.password": "it's\n", "db.secret": '\\"\\"', "token": "'\"'"})
    for text in ("it is", "its\\n", '{"a": "\\"b\\""}', "'\"'", "'\\'\"\\''", "it\\s"):
        assert found.redact(text) == text


def test_what_is_as_short_as_no_secret_is_not_hidden(tmp_path: Path) -> None:
    """Not even nothing at all, which is in every text."""
    (tmp_path / "mounted").write_text("  \n\n")
    (tmp_path / "short").write_text("abc\n")
    found = resolver(tmp_path)
    found.resolve({"a": f"${{dir:{tmp_path}:mounted}}", "b": f"${{dir:{tmp_path}:short}}"})
    assert found.redact("abcdef") == "abcdef"


@pytest.mark.parametrize(
    "word",
    [
        "${env:HOME}",
        "${env:APP_MISSING}",
        "${file:/etc/passwd:root}",
        "${dir:/etc:hostname}",
        "${dir:%s:../x}",
        "${file:%s/no:x}",
    ],
)
def test_what_is_not_allowed_or_missing_is_refused(word: str, tmp_path: Path) -> None:
    """A path outside, a name that is not allowed, a file or key that is not there."""
    with pytest.raises(ConfigError):
        resolver(tmp_path).resolve({"a": word.replace("%s", str(tmp_path))})


def test_a_link_does_not_lead_out(tmp_path: Path) -> None:
    """Links are followed before the comparison."""
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "secret").write_text("x")
    (inside / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match="outside"):
        resolver(inside).resolve({"a": f"${{dir:{inside}:link}}"})
