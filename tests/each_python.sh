#!/usr/bin/env bash
# The suite on other Pythons than the one that `make test` takes: each in a fresh clone of the last commit, with an
# environment of its own. usage: [TARGET=quick] tests/each_python.sh [PYTHON...]
# Without arguments: every python3.12 and later on PATH and of pyenv. TARGET is a target of the Makefile, `test` unless told.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
target=${TARGET:-test}
pythons=("$@")
if ((${#pythons[@]} == 0)); then
  for minor in 12 13 14 15; do
    found=$(command -v "python3.$minor" || true)
    for python in $found "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.$minor.*/bin/python; do
      if [ -x "$python" ] && "$python" -c 'import sys' 2>/dev/null; then pythons+=("$python"); fi
    done
  done
fi
((${#pythons[@]})) || { echo "no Python newer than 3.11 here: name one" >&2; exit 2; }

place=$(mktemp -d "${TMPDIR:-/tmp}/barnabas-pythons-XXXXXX")
failed=0
for python in "${pythons[@]}"; do
  version=$("$python" -c 'import platform; print(platform.python_version())')
  [ -e "$place/$version" ] && continue # found twice
  git clone --quiet "$repository" "$place/$version"
  started=$SECONDS
  if make -C "$place/$version" "$target" PYTHON="$python" >"$place/$version.log" 2>&1; then
    verdict=green
  else
    verdict=RED failed=1
  fi
  echo "Python $version: $verdict after $((SECONDS - started)) s, $place/$version.log"
  grep -E "^(FAILED|ERROR)|passed|failed" "$place/$version.log" | tail -n 30 || true
done
exit "$failed"
