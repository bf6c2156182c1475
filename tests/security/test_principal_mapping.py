"""Rules from the name in a certificate to the name of a user (S11)."""

from __future__ import annotations

import pytest

from barnabas.broker.security.principal_mapping import PrincipalMapping
from barnabas.protocol.settings import ConfigError

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=Duke,C=US", "CN=Duke,C=US"),
        ("", "CN=Duke", "CN=Duke"),
        (RULES, "CN=Duke,OU=ServiceUsers,C=US", "duke"),
        (RULES, "CN=Duke,OU=Dev,O=Org,L=L,ST=S,C=US", "duke@dev"),
        (RULES, "OU=x,CN=a.b-c", "A.B"),
        (RULES, "O=nobody", "O=nobody"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", "CN=Duke,OU=ServiceUsers,C=US", "duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=Duke,OU=ServiceUsers,C=US", "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U", "CN=Duke,OU=ServiceUsers,C=US", "DUKE"),
        ("RULE:CN=(\\w+)/$1$4/", "CN=Duke", "Duke$4"),
        ("RULE:(a)(b)(c)/$12-$3/", "abc", "a2-c"),
        ("RULE:(a)(b)(c)/$0!/", "abc", "abc!"),
        ("RULE:.*/x/", "abc", "xx"),
        (r"RULE:a\/(.)/\/$1/", "a/b", "/b"),
        (r"RULE:(a)/\$1/", "a", "$1"),
        (r"RULE:(a)/$1\\/", "a", "a\\"),
        ("RULE:^CN=([^,]+),.*$/$1/,,  ,DEFAULT", "CN=a,C=b", "a"),
        ("RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/", "CN=x,C=US", "x"),
        ("RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/", "CN=x", "x"),
        ("  DEFAULT  ", "CN=a", "CN=a"),
        ("RULE:a/b/ ,  DEFAULT", "a", "b"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_tells_the_user(
    rules: str, name: str, user: str
) -> None:
    assert PrincipalMapping(rules).user(name) == user


def test_a_name_that_no_rule_matches_is_nobodys() -> None:
    mapping = PrincipalMapping("RULE:^CN=(.*?),OU=ServiceUsers$/$1/")
    assert mapping.user("CN=Duke,OU=ServiceUsers,C=US") is None
    assert PrincipalMapping("RULE:CN=a/b/").user("CN=ab") is None


def test_classes_of_characters_are_those_of_java() -> None:
    assert PrincipalMapping(r"RULE:CN=(\w+)/$1/").user("CN=müller") is None


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAULTS",
        "DEFAULT/L",
        "RULE:x/L",
        "RULE:x/y",
        "RULE:x/y/L/U",
        "RULE:x/y/l",
        "RULE:x/y/LU",
        "RULE:",
        "rule:x/y/",
        "DEFAULT,RULE:x/L",
        "RULE:(/y/",
        "RULE:x/$y/",
        "RULE:x/$/",
        "RULE:[[a]/x/",
        r"RULE:\p{L}/x/",
        "x",
    ],
)
def test_what_is_no_rule_or_reads_otherwise_in_java_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.principal\.mapping\.rules="):
        PrincipalMapping(rules)
