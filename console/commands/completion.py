"""``barnabas completion``: a script with which the shell completes our command line.

The words are read from the parsers when the script is made, so that a key press starts nothing.
Source: docs/spec/console.md §8.
"""

from __future__ import annotations

import argparse
from typing import Final

from barnabas.console.command_line.completion_words import Table, completion_table

_SHELLS: Final = ("bash", "zsh", "fish")
_BASH: Final = """\
# barnabas completion: eval "$(barnabas completion {shell})"
{before}_barnabas_complete() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" path="" found="" candidate at
  for ((at = 1; at < COMP_CWORD; at++)); do
    candidate="$path ${{COMP_WORDS[at]}}"
    [[ -n "$(_barnabas_words "$candidate")" ]] && path="$candidate"
  done
  found="$(_barnabas_words "$path")"
  COMPREPLY=()
  case "$word" in
    -*) ;;
    *) case " $found " in *" "[a-z]*) ;; *) return ;; esac ;;
  esac
  while IFS= read -r candidate; do
    COMPREPLY+=("$candidate")
  done < <(compgen -W "$found" -- "$word")
}}
_barnabas_words() {{
  case "$1" in
{cases}
  esac
}}
complete -o default -F _barnabas_complete barnabas
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which shell."""
    parser.add_argument("shell", choices=_SHELLS, help="the shell that is to read the script")


def run(chosen: argparse.Namespace) -> int:
    """Print the script."""
    from barnabas.console.__main__ import whole_parser

    table = completion_table(whole_parser())
    print(_fish(table) if chosen.shell == "fish" else _bash(table, chosen.shell), end="")
    return 0


def _bash(table: Table, shell: str) -> str:
    before = "autoload -Uz bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    cases = "\n".join(
        f'    "{"".join(f" {word}" for word in path)}") echo "{" ".join(words)}" ;;'
        for path, words in sorted(table.items())
        if words
    )
    return _BASH.format(shell=shell, before=before, cases=cases)


def _fish(table: Table) -> str:
    lines = ["# barnabas completion: barnabas completion fish | source"]
    for path, words in sorted(table.items()):
        names = [word for word in words if not word.startswith("--")]
        if path:
            seen = " ".join(f"; and __fish_seen_subcommand_from {word}" for word in path)
            condition = seen.removeprefix("; and ")
            if names:
                condition += f"; and not __fish_seen_subcommand_from {' '.join(names)}"
        else:
            condition = "__fish_use_subcommand"
        for word in words:
            kind = f"-l {word[2:]}" if word.startswith("--") else f"-f -a {word}"
            lines.append(f"complete -c barnabas -n '{condition}' {kind}")
    return "\n".join(lines) + "\n"
