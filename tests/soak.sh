#!/usr/bin/env bash
# `make test` some times in a row, on a loaded machine, in a fresh clone with an empty home directory.
# A test that depends on time fails here. PYTHONS gives each run a Python of its own, in turn; else all have python3.
# usage: [TESTS=...] [PYTHONS="python3.11 python3.12 ..."] tests/soak.sh [RUNS [ARGUMENTS OF stress-ng]]
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
runs=${1:-3}
load=("${@:2}")
read -r -a pythons <<<"${PYTHONS:-python3}"
((${#load[@]})) || load=(--cpu "$(nproc)" --io 1 --vm 1 --vm-bytes 256M)
command -v stress-ng >/dev/null || { echo "stress-ng is missing: apt-get install stress-ng" >&2; exit 2; }

place=$(mktemp -d "${TMPDIR:-/tmp}/barnabas-soak-XXXXXX")
mkdir "$place/home"
git clone --quiet "$repository" "$place/clone"
cd "$place/clone"
echo "$(git log -1 --format='%h %s') in $place"

stress-ng --temp-path "$place" "${load[@]}" >"$place/stress.log" 2>&1 &
stress=$!
end() {
  kill "$stress" 2>/dev/null || true
  wait "$stress" 2>/dev/null || true
}
trap end EXIT
# To end it early, signal its process group: bash acts on a signal when what it waits for has ended.
trap 'exit 130' INT TERM

failed=0 former=
for run in $(seq "$runs"); do
  started=$SECONDS python=${pythons[(run - 1) % ${#pythons[@]}]}
  [ "$python" = "$former" ] || rm -rf .venv
  former=$python
  if .ci/as_newcomer "$place/home" "$PATH" make test PYTHON="$python" TESTS="${TESTS:-}" >"$place/run-$run.log" 2>&1; then
    verdict=green
  else
    verdict=RED failed=1
  fi
  kill -0 "$stress" 2>/dev/null || { echo "the load ended early: $place/stress.log" >&2; failed=1; }
  echo "run $run of $runs, $("$python" --version): $verdict after $((SECONDS - started)) s, $place/run-$run.log"
  grep -E "^(FAILED|ERROR)|passed|failed" "$place/run-$run.log" | tail -n 30
done
exit "$failed"
