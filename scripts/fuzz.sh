#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time (default 30s).
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
count=0
while IFS=: read -r file target; do
  package=./$(dirname "$file")
  echo "== $package $target"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package"
  count=$((count + 1))
done < <(grep -rHoE '^func (Fuzz[A-Za-z0-9_]+)\(' --include='*_test.go' pkg internal services cmd | sed -E 's/:func /:/; s/\($//' | sort)
[ "$count" -gt 0 ] || { echo "no fuzz target found" >&2; exit 1; }
echo "$count fuzz targets ran for $time each"
