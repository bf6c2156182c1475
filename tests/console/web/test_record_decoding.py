"""What bytes are taken for, and what a mask leaves of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.command_line.failure import Failure
from barnabas.console.web.records.decoding import DECODERS, decode
from barnabas.console.web.records.masking import HIDDEN, Mask, Masks, read_masks

CARD = {
    "card": {"number": "4111111111111111", "owner": "Kim"},
    "cards": [{"number": "42"}],
    "id": 7,
}


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", None),
        (b"", "text", ""),
        (b"two teas", "text", "two teas"),
        (b'{"a":1}', "json", '{"a":1}'),
        (b"{not json", "text", "{not json"),
        (b"[" * 100_000, "text", "[" * 100_000),
        (b'{"a":NaN}', "text", '{"a":NaN}'),
        (b"\x00\x00\x00\x07", "int32", "7"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xfe", "int64", "-2"),
        (b"\x00\x01\xfe", "hex", "00 01 fe"),
        (msgpack.packb({"a": [1, b"\x01"], 2: None}), "msgpack", '{"a": [1, "01"], "2": null}'),
        (b"\x82\xff\x00", "hex", "82 ff 00"),
    ],
)
def test_bytes_are_taken_for_what_they_look_like(
    data: bytes | None, kind: str, text: str | None
) -> None:
    found = decode(data)
    assert (found.kind, found.text) == (kind, text)
    assert found.bytes == len(data or b"")


@given(st.binary(max_size=300), st.sampled_from(["", *DECODERS]))
def test_whatever_the_bytes_they_are_shown(data: bytes, wanted: str) -> None:
    found = decode(data, wanted)
    assert found.text is not None
    assert found.bytes == len(data)


def test_what_it_is_not_is_shown_as_hex() -> None:
    assert decode(b"abc", "int").kind == "hex"
    assert decode(b"\xff", "json").kind == "hex"


def masks(tmp_path: Path, text: str) -> Masks:
    file = tmp_path / "masks.toml"
    file.write_text(text)
    return read_masks(file)


def mask(tmp_path: Path, **entry: Any) -> Mask:
    lines = [f"{name} = {json.dumps(value)}" for name, value in entry.items()]
    found = masks(tmp_path, "\n".join(["[[mask]]", 'topic = "pay*"', *lines])).of("payments")
    assert found is not None
    return found


def test_parts_of_a_value_are_hidden_and_the_rest_stays(tmp_path: Path) -> None:
    found = mask(tmp_path, paths=["value.card.number", "value.cards.number"], how="last-4")
    shown = found.field("value", decode(json.dumps(CARD).encode()))
    assert shown.text is not None
    assert json.loads(shown.text) == {
        "card": {"number": "…1111", "owner": "Kim"}, "cards": [{"number": HIDDEN}], "id": 7,
    }  # fmt: skip
    assert shown.value == json.loads(shown.text), "a filter sees what is shown"


def test_a_value_that_cannot_be_taken_apart_is_hidden_as_a_whole(tmp_path: Path) -> None:
    found = mask(tmp_path, paths=["value.card.number"])
    for data in (b"4111111111111111", b"\xff\x00\x01"):
        assert found.field("value", decode(data)).text == HIDDEN
    assert found.field("key", decode(b"kim")).text == "kim"


def test_an_allow_list_hides_all_else_headers_and_key_too(tmp_path: Path) -> None:
    found = mask(tmp_path, only=["value.id"])
    shown = found.field("value", decode(json.dumps(CARD).encode()))
    assert shown.value == {"card": HIDDEN, "cards": HIDDEN, "id": 7}
    assert found.field("key", decode(b"kim")).text == HIDDEN
    assert found.header("authorization", "x") == HIDDEN


def test_equal_values_have_equal_hashes_that_say_nothing_of_them(tmp_path: Path) -> None:
    found = mask(tmp_path, paths=["key", "header.a.b"], how="hash")
    first, second = (found.field("key", decode(b"4111111111111111")).text for _ in range(2))
    assert first == second != found.field("key", decode(b"4111111111111112")).text
    assert first is not None
    assert "4111" not in first
    assert found.header("a.b", "secret") != "secret"
    assert found.header("other", "open") == "open"


def test_a_topic_that_no_entry_names_is_not_masked(tmp_path: Path) -> None:
    assert masks(tmp_path, '[[mask]]\ntopic = "pay*"\nonly = []\n').of("orders") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "entries"),
        ("mask = 1", "entries"),
        ("[[mask]", "line 1"),
        ('[[mask]]\ntopic = "a"', "either paths or only"),
        ('[[mask]]\ntopic = "a"\npaths = ["key"]\nonly = []', "either paths or only"),
        ('[[mask]]\npaths = ["key"]', "topic must be"),
        ('[[mask]]\ntopic = "a"\npaths = ["card"]', "begins with"),
        ('[[mask]]\ntopic = "a"\npaths = [1]', "lists of texts"),
        ('[[mask]]\ntopic = "a"\npaths = ["key"]\nhow = "blur"', "how must be"),
        ('[[mask]]\ntopic = "a"\npaths = ["key"]\nwho = "me"', "may have"),
    ],
)
def test_a_mask_that_is_not_understood_opens_nothing(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Failure, match=words):
        masks(tmp_path, text)


def test_a_file_of_masks_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"nowhere\.toml"):
        read_masks(tmp_path / "nowhere.toml")
