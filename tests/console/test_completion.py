"""Completion in a shell: the script that is printed, run by the shell that it is for."""

from __future__ import annotations

import subprocess

import pytest

from barnabas.console.__main__ import main, whole_parser
from barnabas.console.command_line.completion_words import completion_table
from tests.harness.needs import program


def completed(script: str, *words: str) -> list[str]:
    """What bash offers behind ``words``, of which the last is being typed."""
    typed = " ".join(f"'{word}'" for word in words)
    asked = (
        f"{script}\nCOMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _barnabas_complete; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    bash = program("bash", package="bash")
    done = subprocess.run([bash, "-c", asked], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", "bash"]) == 0
    return capsys.readouterr().out


def test_commands_are_completed(script: str) -> None:
    assert completed(script, "barnabas", "gr") == ["groups"]
    assert {"up", "topics", "completion"} <= set(completed(script, "barnabas", ""))


def test_commands_of_commands_are_completed(script: str) -> None:
    assert completed(script, "barnabas", "groups", "des") == ["describe"]
    assert completed(script, "barnabas", "nodes", "dr") == ["drain"]
    assert "--evict" in completed(script, "barnabas", "groups", "reset", "--")


def test_options_are_completed_behind_other_options(script: str) -> None:
    assert completed(script, "barnabas", "up", "--port", "0", "--dem") == ["--demo"]
    assert "--max-lag" in completed(script, "barnabas", "groups", "lag", "g", "--max-")


def test_where_a_name_is_typed_the_shell_completes_files(script: str) -> None:
    assert completed(script, "barnabas", "broker", "node") == []


def test_every_command_is_in_the_table() -> None:
    table = completion_table(whole_parser())
    assert "--json" in table["groups", "lag"]
    assert all(path[:-1] in table for path in table if path)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    said = capsys.readouterr().out
    assert "bashcompinit" in said if shell == "zsh" else "complete -c barnabas" in said
