"""The list of modules that a compiled wheel compiles, and how an installation is told apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from barnabas.broker.runtime import compiled_modules
from barnabas.broker.runtime.compiled_modules import COMPILED_MODULES, is_extension, kind_of_build
from barnabas.console.__main__ import main
from hatch_build import CompiledModulesHook
from tests.harness.compiled_code import interpreted_only

ROOT = Path(__file__).parents[2]
FOLDERS = ("broker", "client", "console", "coordinator", "pipeline", "protocol")
NOT_NATIVE = {"NamedTuple", "Protocol", "Exception", "Enum", "IntEnum", "Refused"}
"""A class that derives from one of these stays one of Python's own."""


def file_of(module: str) -> Path:
    return ROOT / f"{module.removeprefix('barnabas.').replace('.', '/')}.py"


def classes(path: Path) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if type(node) is ast.ClassDef)


def base_names(declared: ast.ClassDef) -> set[str]:
    plain = (base.value if isinstance(base, ast.Subscript) else base for base in declared.bases)
    return {base.id for base in plain if isinstance(base, ast.Name)}


def test_every_module_of_the_list_exists_and_stands_in_its_place() -> None:
    assert all(file_of(module).is_file() for module in COMPILED_MODULES)
    assert list(COMPILED_MODULES) == sorted(set(COMPILED_MODULES))


def test_no_interpreted_class_derives_from_a_compiled_one() -> None:
    """Python would import it, and make no object of it: mypyc refuses that when it is tried."""
    compiled = {file_of(module) for module in COMPILED_MODULES}
    native = {
        declared.name
        for path in compiled
        for declared in classes(path)
        if not base_names(declared) & NOT_NATIVE
    }
    others = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    for path in (path for path in others if path not in compiled):
        names = imported_from_compiled(path) & native
        for declared in classes(path):
            assert not base_names(declared) & names, f"{path}: compile {declared.name}, too"


@pytest.mark.parametrize("module", COMPILED_MODULES)
def test_nobody_awaits_in_finally(module: str) -> None:
    """Compiled, the error that passes there is raised again by every later call (mypyc 2.4)."""
    for node in ast.walk(ast.parse(file_of(module).read_text())):
        ends = node.finalbody if isinstance(node, ast.Try) else []
        for found in (found for part in ends for found in ast.walk(part)):
            assert not isinstance(found, ast.Await), f"line {found.lineno}"


def imported_from_compiled(path: Path) -> set[str]:
    """Names that a file has from modules of the list."""
    package = ".".join(("barnabas", *path.parent.relative_to(ROOT).parts))
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            module = f"{package}.{node.module}" if node.level else node.module
            if module in COMPILED_MODULES:
                found |= {alias.name for alias in node.names}
    return found


@interpreted_only
def test_a_checkout_is_interpreted_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert kind_of_build() == "interpreted"
    assert main(["--version"]) == 0
    assert " (interpreted, Python 3." in capsys.readouterr().out


def test_the_file_that_python_imports_decides_what_an_installation_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extension, source = "uvloop.loop", "barnabas.protocol.errors"
    assert is_extension(extension)
    assert not is_extension(source)
    assert not is_extension("barnabas.there_is_none")
    for modules, kind in (
        ((extension,), "compiled"),
        ((source,), "interpreted"),
        ((extension, source), "compiled in part (1 of 2 modules)"),
    ):
        monkeypatch.setattr(compiled_modules, "COMPILED_MODULES", modules)
        assert kind_of_build() == kind


def test_an_extension_beside_its_source_is_what_python_imports(tmp_path: Path) -> None:
    """The sources are in the wheel, too."""
    from importlib.machinery import EXTENSION_SUFFIXES, FileFinder, SourceFileLoader

    for suffix in (EXTENSION_SUFFIXES[0], ".py"):
        (tmp_path / f"both{suffix}").touch()
    loaders = [(ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceFileLoader, [".py"])]
    found = FileFinder(str(tmp_path), *loaders).find_spec("both")
    assert found is not None
    assert isinstance(found.loader, ExtensionFileLoader)


def test_nothing_is_compiled_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HATCH_BUILD_HOOK_ENABLE_CUSTOM", raising=False)
    wheel = WheelBuilder(str(ROOT)).config
    assert not wheel.hook_config
    assert not wheel.dependencies
    monkeypatch.setenv("HATCH_BUILD_HOOK_ENABLE_CUSTOM", "1")
    asked = WheelBuilder(str(ROOT)).config
    assert set(asked.hook_config) == {"custom"}
    assert any(needed.startswith("mypy") for needed in asked.dependencies)
    assert not SdistBuilder(str(ROOT)).config.hook_config


def test_an_editable_install_needs_no_compiler_even_then(tmp_path: Path) -> None:
    builder = WheelBuilder(str(ROOT))
    hook = CompiledModulesHook(
        str(ROOT), {}, builder.config, builder.metadata, str(tmp_path), "wheel", builder.app
    )
    build_data = builder.get_default_build_data()
    expected = dict(build_data)
    hook.initialize("editable", build_data)
    hook.finalize("editable", build_data, "")
    assert build_data == expected
