#!/usr/bin/env bash
# Writes the data directory that the test of upgrades opens: what a binary of today leaves
# behind. Run it when the format of the data directory, of checkpoints or of journals is
# raised, and keep the files of the formats before: newer binaries must open them all.
#   scripts/fixture.sh        → tests/testdata/data-format-N.tar.gz and .ndjson (its rows)
set -euo pipefail
cd "$(dirname "$0")/.."
format=$(sed -n 's/^const dataFormat = //p' cmd/tidemark/datadir.go)
work=$(mktemp -d)
trap 'kill "${pid:-0}" 2>/dev/null || true; rm -rf "$work"' EXIT
go build -o "$work/tidemark" ./cmd/tidemark
"$work/tidemark" up --data "$work/data" --nats-port 0 --http-port 0 >"$work/out" 2>"$work/log" &
pid=$!
for _ in $(seq 600); do
  [ -s "$work/data/endpoints.json" ] && break
  sleep 0.1
done
nats=$(sed -E 's/.*"nats":"([^"]+)".*/\1/' "$work/data/endpoints.json")
cat >"$work/clicks.yaml" <<'YAML'
apiVersion: tidemark/v1
kind: BusinessStream
name: clicks
partitions: 1
key: [/user]
values:
  n: {path: /n, type: int}
eventTime:
  at@1: {path: /at, format: unix-ms}
---
apiVersion: tidemark/v1
kind: StreamTimePolicy
stream: clicks
job: per-minute@1
sources: [{name: web, partitions: 1}]
timestampExtractor: at@1
watermark: {boundedOutOfOrderness: 2s}
window: {tumbling: 1m}
aggregates: {clicks: count(), total: sum(n)}
allowedLateness: 24h
retention: {ids: 25h}
YAML
awk 'BEGIN { for (i = 0; i < 500; i++) printf "{\"id\":\"e%d\",\"user\":\"user-%d\",\"n\":%d,\"at\":%.0f}\n", i, i % 7, i % 13, 1740816000000 + i * 1000 - (i % 50 == 0 ? 90000 : 0) }' >"$work/clicks.jsonl"
echo '{"id":"bad","user":"user-1","n":1.5,"at":1740816000000}' >>"$work/clicks.jsonl"
t() { "$work/tidemark" "$@" --server "$nats"; }
t apply -f "$work/clicks.yaml" >/dev/null
t send "$work/clicks.jsonl" --stream clicks --source web --partition 0 2>/dev/null
t wait clicks
t verify clicks >/dev/null
out=tests/testdata/data-format-$format
t windows clicks -o ndjson >"$out.ndjson"
kill -TERM "$pid"
wait "$pid"
rm -f "$work/data/endpoints.json"
tar --sort=name --mtime=2026-01-01 --owner=0 --group=0 --numeric-owner -C "$work/data" -cf - . | gzip -9n >"$out.tar.gz"
ls -l "$out".*
