"""Logins in the text form of Java. Source: docs/spec/security.md §2 (S27)."""

from __future__ import annotations

import pytest

from barnabas.protocol.jaas import parse_jaas, parse_jaas_file

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def options(text: str) -> dict[str, str]:
    return dict(parse_jaas(f"{PLAIN} required {text};").options)


def test_a_login_has_a_module_its_options_and_the_users_that_may_come_in() -> None:
    login = parse_jaas(f'{PLAIN} required username="u" password="p" user_alice="a" user_u="p";')
    assert login.module == PLAIN
    assert login.options["username"] == "u"
    assert login.users == {"alice": "a", "u": "p"}


@pytest.mark.parametrize("flag", ["required", "REQUISITE", "Sufficient", "optional"])
def test_any_flag_in_any_case_will_do(flag: str) -> None:
    assert parse_jaas(f"{PLAIN} {flag};").options == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=b", "b"),
        ("a=1.x_y-$2", "1.x_y-$2"),
        ("a='b c'", "b c"),
        ('a="it\'s"', "it's"),
        ('a = "b"', "b"),
        (r'a="say \"b\""', 'say "b"'),
        (r'a="a\\b\tc\n"', "a\\b\tc\n"),
        (r'a="\101\1012\7"', "AA2\a"),
        (r'a="\q\9"', "q9"),
        ('a="b=;c"', "b=;c"),
        ("a=/* not this */b // nor this\n", "b"),
        ('a="/* b */ // c"', "/* b */ // c"),
        ('a=""', ""),
    ],
)
def test_values_are_bare_words_or_quoted(text: str, value: str) -> None:
    assert options(text) == {"a": value}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must begin"),
        ("; required", "must begin"),
        (f"'{PLAIN}' required;", "must begin"),
        (f"{PLAIN};", "must be followed"),
        (f"{PLAIN} needed;", "must be followed"),
        (f"{PLAIN} required", "semicolon"),
        (f"{PLAIN} required secret", "each option"),
        (f"{PLAIN} required secret;", "each option"),
        (f"{PLAIN} required a=;", "each option"),
        (f"{PLAIN} required a:secret;", "cannot be read"),
        (f'{PLAIN} required a="secret;', "cannot be read"),
        (f'{PLAIN} required a="secret\n";', "cannot be read"),
        (f"{PLAIN} required; {PLAIN} required;", "one login module"),
    ],
)
def test_a_login_that_cannot_be_read_is_refused_without_repeating_it(
    text: str, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem) as refused:
        parse_jaas(text)
    assert "secret" not in str(refused.value)


def test_a_login_shows_no_password() -> None:
    """S91."""
    assert "hush" not in repr(parse_jaas(f'{PLAIN} required password="hush";'))


def test_a_file_has_sections_with_a_login_each() -> None:
    text = f"// what Kafka's broker has\nServer {{\n  {PLAIN} required user_a='b';\n}};\n"
    sections = parse_jaas_file(text + f"Client {{ {PLAIN} required username=u; }};")
    assert {name: login.options for name, login in sections.items()} == {
        "Server": {"user_a": "b"},
        "Client": {"username": "u"},
    }
    assert parse_jaas_file("") == {}


@pytest.mark.parametrize(
    "text",
    [
        f"Client {PLAIN} required secret=secret;",
        f"Client {{ {PLAIN} required a=secret; }}",
        f"Client {{ {PLAIN} required a=secret;",
        f"Client {{ {PLAIN} required a=secret; {PLAIN} required; }};",
        "Client { };",
        "{ secret };",
    ],
)
def test_a_file_that_cannot_be_read_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match="must") as refused:
        parse_jaas_file(text)
    assert "secret" not in str(refused.value)
