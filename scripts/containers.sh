#!/usr/bin/env bash
# Builds the images from source, brings the stack up, sends the flights through it, and
# checks the result with `tidemark verify`. Leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/.."

if docker compose version >/dev/null 2>&1; then compose=(docker compose)
elif command -v docker-compose >/dev/null; then compose=(docker-compose)
else echo "neither docker compose nor docker-compose is installed" >&2; exit 1; fi

export GO_IMAGE=${GO_IMAGE:-tidemark-golang:local}
if [ "$GO_IMAGE" = tidemark-golang:local ]; then scripts/base-image.sh "$GO_IMAGE"; fi
export COMPOSE_PROJECT_NAME=tidemark-e2e-$$ NATS_PORT=${NATS_PORT:-14222} INGEST_PORT=${INGEST_PORT:-18080} PROJECTOR_PORT=${PROJECTOR_PORT:-18081}

end() {
  code=$?
  if [ $code -ne 0 ]; then "${compose[@]}" logs --tail=50 || true; fi
  "${compose[@]}" down --volumes --remove-orphans --timeout 25
  exit $code
}
trap end EXIT

"${compose[@]}" up --build --detach
for service in nats ingest windower projector; do
  for _ in $(seq 120); do
    state=$(docker inspect --format '{{.State.Health.Status}}' "$("${compose[@]}" ps -q "$service")")
    [ "$state" = healthy ] && break
    sleep 1 # between two looks at the engine
  done
  [ "$state" = healthy ] || { echo "$service is $state" >&2; exit 1; }
  echo "$service is healthy"
done

go build -o bin/tidemark ./cmd/tidemark
export NATS_URL=nats://127.0.0.1:$NATS_PORT
bin/tidemark apply -f examples/flights/flights.yaml
bin/tidemark send examples/flights/flights-20k.jsonl.gz --stream flights --source flights --finish
bin/tidemark wait flights --timeout 2m
rows=$(bin/tidemark windows flights -o ndjson | wc -l)
[ "$rows" -gt 10000 ] || { echo "only $rows windows" >&2; exit 1; }
bin/tidemark verify flights

echo "killing the projector and the windower; the result stays"
"${compose[@]}" kill projector windower
"${compose[@]}" up --detach
bin/tidemark wait flights --timeout 2m
bin/tidemark verify flights
bin/tidemark health "http://127.0.0.1:$INGEST_PORT/livez"
echo "containers: $rows windows equal the oracle, before and after the kill"
