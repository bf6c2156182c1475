"""What others wrote and we serve is what npm has, and of htmx only what may be used is used."""

from __future__ import annotations

import hashlib
import re

from barnabas.console.web.render import HERE, STATIC, asset_url, assets
from barnabas.console.web.vendored import FOLDER, LIST, listed

HTMX = {"hx-get", "hx-post", "hx-target", "hx-swap", "hx-trigger", "hx-push-url"}
"""So that another release of htmx could take its place; `hx-on` and `js:` would evaluate text."""
CSS_BYTES_MAX = 12_000


def test_every_vendored_file_is_listed_with_its_hash_and_its_licence() -> None:
    files = {item["file"]: item["sha256"] for package in listed() for item in package["files"]}
    assert {path.name for path in FOLDER.iterdir()} == {*files, LIST.name}
    for name, sha256 in files.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == sha256
    for package in listed():
        assert any(item["file"].endswith("LICENSE") for item in package["files"])
        assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
        assert package["integrity"].startswith("sha512-")


def test_templates_use_of_htmx_only_what_is_allowed() -> None:
    for path in (HERE / "templates").glob("*.html"):
        text = path.read_text()
        used = set(re.findall(r"\bhx-[a-z:-]+", text))
        assert used <= HTMX, path.name
        assert "js:" not in text
        assert not re.search(r'hx-trigger="[^"]*\[', text), path.name


def test_no_template_marks_a_text_as_safe() -> None:
    for path in (HERE / "templates").glob("*.html"):
        text = path.read_text()
        assert not re.search(r"\|\s*safe|autoescape|Markup", text), path.name
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text), path.name


def test_static_files_are_named_by_their_content_and_come_from_nowhere_else() -> None:
    assert all(re.match(r"[0-9a-f]{12}-", name) for name in assets())
    url = asset_url("console.css")
    css = (STATIC / "console.css").read_text()
    assert url.split("/")[-1].startswith(hashlib.sha256(css.encode()).hexdigest()[:12])
    assert "url(" not in css
    assert "@import" not in css
    assert len(css.encode()) < CSS_BYTES_MAX
    for path in (HERE / "templates").glob("*.html"):
        assert not re.search(r"(src|href)=\"https?:", path.read_text()), path.name
