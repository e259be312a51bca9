#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time (default 30s); a second argument
# picks the targets whose name matches it. Inputs that fail stay under testdata/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
pick=${2:-.}
count=0
while IFS=: read -r file target; do
  [[ $target =~ $pick ]] || continue
  package=./$(dirname "$file")
  echo "== $package $target"
  # Inputs that are only interesting are not minimised: on large documents that takes
  # longer than the run, and the engine then reports its own deadline as a failure.
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1x "$package"
  count=$((count + 1))
done < <(grep -rHoE '^func (Fuzz[A-Za-z0-9_]+)\(' --include='*_test.go' pkg internal services consumers cmd | sed -E 's/:func /:/; s/\($//' | sort)
[ "$count" -gt 0 ] || { echo "no fuzz target found" >&2; exit 1; }
echo "$count fuzz targets ran for $time each"
