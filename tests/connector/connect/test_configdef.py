"""ConfigDef: types, defaults, validators, the validate answer, the table."""

from __future__ import annotations

from typing import Any

import pytest
from keyorder.connector.connect.config.configdef import ConfigDef
from keyorder.connector.connect.config.keys import ConfigKey, Importance, Password, Recommender, Type
from keyorder.connector.connect.config.parsing import parse_type
from keyorder.connector.connect.config.rendering import markdown, validation_json
from keyorder.connector.connect.config.validators import (
    Composite,
    Lambda,
    ListSize,
    NonEmptyString,
    NonEmptyStringWithoutControlChars,
    NonNull,
    Range,
    Regex,
    Validator,
    ValidList,
    ValidString,
)
from keyorder.partitioner.errors import ConfigError


def definition() -> ConfigDef:
    return (
        ConfigDef()
        .define("url", Type.STRING, importance="HIGH", documentation="Where.", group="Connection")
        .define("password", Type.PASSWORD, None, "HIGH", "Secret.", group="Connection")
        .define("batch", Type.INT, 10, Importance.LOW, "How many.", validator=Range.between(1, 100), group="Work")
        .define("mode", Type.STRING, "a", validator=ValidString("a", "b"), dependents=("batch",))
        .define("old.style", Type.LIST, [], alternative="oldstyle")
    )


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("BOOLEAN", " TRUE ", True),
        ("BOOLEAN", "false", False),
        ("INT", "2147483647", 2**31 - 1),
        ("SHORT", "-32768", -(2**15)),
        ("LONG", str(2**63 - 1), 2**63 - 1),
        ("DOUBLE", "1.5e3", 1500.0),
        ("LIST", "a, b,c", ["a", "b", "c"]),
        ("LIST", "", []),
        ("STRING", " x ", "x"),
        ("CLASS", "collections:OrderedDict", "collections:OrderedDict"),  # named, never imported
        ("PASSWORD", " s \n", Password("s")),
    ],
)
def test_each_type_reads_its_text(kind: str, text: str, value: Any) -> None:
    """As Kafka's ConfigDef does."""
    key = ConfigKey("x", Type(kind), None, Importance.LOW, "")
    assert parse_type(key, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("BOOLEAN", "yes"),
        ("INT", "2147483648"),
        ("SHORT", "32768"),
        ("INT", "1.0"),
        ("INT", True),
        ("DOUBLE", "x"),
        ("STRING", 3),
    ],
)
def test_each_type_refuses_what_it_cannot_read(kind: str, text: Any) -> None:
    """With an error that names the setting."""
    with pytest.raises(ConfigError, match="x: "):
        parse_type(ConfigKey("x", Type(kind), None, Importance.LOW, ""), text)


@pytest.mark.parametrize(
    ("validator", "good", "bad"),
    [
        (Range.at_least(3), 3, 2),
        (Range.between(1, 2), 2, 3),
        (ValidString("a"), "a", "A"),
        (ValidString("a", ignore_case=True), "A", "b"),
        (ValidList("a", "b"), ["b"], ["c"]),
        (ListSize(1), ["a"], ["a", "b"]),
        (NonEmptyString(), "a", " "),
        (NonEmptyStringWithoutControlChars(), "a", "a\tb"),
        (NonNull(), 0, None),
        (Regex(), "a+", "a("),
        (Composite(NonEmptyString(), ValidString("a", " ")), "a", " "),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Validator) else "",
)
def test_validators_tell_good_from_bad(validator: Validator, good: Any, bad: Any) -> None:
    """And each describes itself."""
    validator.ensure("x", good)
    with pytest.raises(ConfigError):
        validator.ensure("x", bad)
    assert str(validator)


def test_a_lambda_validator_runs_its_function() -> None:
    """With name and value."""
    seen = []
    Lambda(lambda name, value: seen.append((name, value)), "any").ensure("x", 1)
    assert seen == [("x", 1)]


def test_every_error_is_collected_and_no_secret_is_shown() -> None:
    """Connect's shape, all wrong settings at once, the password hidden."""
    given = {"password": "hunter2", "batch": "1000", "mode": "c"}
    answer = validation_json("Mine", definition(), definition().validate(given))
    values = {c["value"]["name"]: c["value"] for c in answer["configs"]}

    assert (answer["name"], answer["error_count"], answer["groups"]) == ("Mine", 3, ["Connection", "Work"])
    assert {name for name, value in values.items() if value["errors"]} == {"url", "batch", "mode"}
    assert values["url"]["errors"] == ['Missing required configuration "url" which has no default value.']
    assert values["password"]["value"] == "[hidden]"
    assert "hunter2" not in str(answer)
    assert answer["configs"][2]["definition"] == {
        "name": "batch",
        "type": "INT",
        "required": False,
        "default_value": "10",
        "importance": "LOW",
        "documentation": "How many.",
        "group": "Work",
        "order": 1,
        "width": "NONE",
        "display_name": "batch",
        "dependents": [],
    }


def test_parse_gives_typed_values_and_raises_for_the_first_error() -> None:
    """Defaults, alternatives, unknown names left alone."""
    parsed = definition().parse({"url": "x", "oldstyle": "a,b", "unknown": "1"})
    assert parsed == {"url": "x", "password": None, "batch": 10, "mode": "a", "old.style": ["a", "b"]}
    with pytest.raises(ConfigError, match="batch"):
        definition().parse({"url": "x", "batch": "0"})


def test_a_default_must_be_valid_and_a_name_defined_once() -> None:
    """Mistakes of the plugin's author show at once."""
    with pytest.raises(ConfigError):
        ConfigDef().define("x", Type.INT, 0, validator=Range.at_least(1))
    with pytest.raises(ValueError, match="twice"):
        ConfigDef().define("x", Type.INT, 0).define("x", Type.INT, 0)


def test_a_recommender_suggests_and_hides() -> None:
    """By the other settings' values."""
    recommender = Recommender(lambda name, parsed: [parsed["url"]], lambda name, parsed: parsed["url"] != "x")
    made = definition().define("table", Type.STRING, "", recommender=recommender)
    table = next(value for value in made.validate({"url": "x"}) if value.name == "table")
    assert (table.recommended_values, table.visible) == (["x"], False)


def test_the_table_lists_every_setting() -> None:
    """One row each, with type, default, valid values."""
    rows = markdown(definition()).splitlines()
    assert rows[2] == "| `url` | string | required |  | high | Where. |"
    assert rows[4] == "| `batch` | int | `10` | [1,...,100] | low | How many. |"
    assert len(rows) == 2 + 5


def test_a_password_is_hidden_wherever_it_is_printed() -> None:
    """In str, repr and containers."""
    secret = Password("hunter2")
    assert (str(secret), f"{[secret]}", secret.value) == ("[hidden]", "[[hidden]]", "hunter2")
