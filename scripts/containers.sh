#!/usr/bin/env bash
# Builds the images from source, brings the stack up with two instances of every service,
# sends the flights through it while instances are killed, frozen and cut off, and checks
# the result with `tidemark verify`. Leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/.."

if docker compose version >/dev/null 2>&1; then compose=(docker compose)
elif command -v docker-compose >/dev/null; then compose=(docker-compose)
else echo "neither docker compose nor docker-compose is installed" >&2; exit 1; fi

export GO_IMAGE=${GO_IMAGE:-tidemark-golang:local}
if [ "$GO_IMAGE" = tidemark-golang:local ]; then scripts/base-image.sh "$GO_IMAGE"; fi
export COMPOSE_PROJECT_NAME=tidemark-e2e-$$
export NATS_PORT=${NATS_PORT:-14222} INGEST_PORT=${INGEST_PORT:-18080-18089} PROJECTOR_PORT=${PROJECTOR_PORT:-18090-18099}

end() {
  code=$?
  if [ $code -ne 0 ]; then "${compose[@]}" logs --tail=40 || true; fi
  "${compose[@]}" down --volumes --remove-orphans --timeout 25
  exit $code
}
trap end EXIT

say() { printf '\n-- %s (%ss)\n' "$1" "$SECONDS"; }

# containers of a service, one id a line
ids() { "${compose[@]}" ps -q "$1"; }

# first and last read to the end: a writer that is cut off would fail the script.
first() { ids "$1" | sed -n 1p; }
last() { ids "$1" | sed -n '$p'; }

# healthy waits until every instance of every service is.
healthy() {
  for service in nats ingest windower projector; do
    for id in $(ids "$service"); do
      for _ in $(seq 120); do
        state=$(docker inspect --format '{{.State.Health.Status}}' "$id")
        [ "$state" = healthy ] && break
        sleep 1 # between two looks at the engine
      done
      [ "$state" = healthy ] || { echo "$service $id is $state" >&2; docker logs --tail 20 "$id"; exit 1; }
    done
  done
}

# bring starts what is not running, two instances of every service.
bring() { "${compose[@]}" up --detach "$@" --scale ingest=2 --scale windower=2 --scale projector=2; }

say "build and start"
bring --build
healthy
docker inspect --format '{{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}}' $(ids windower) |
  while read -r user rest; do
    [ "$user $rest" = "65532:65532 true [ALL]" ] || { echo "windower runs as '$user $rest'" >&2; exit 1; }
  done

go build -o bin/tidemark ./cmd/tidemark
export NATS_URL=nats://127.0.0.1:$NATS_PORT
bin/tidemark apply -f examples/flights/flights.yaml

say "flights flow while instances are killed, frozen and cut off"
bin/tidemark send examples/flights/flights-20k.jsonl.gz --stream flights --source flights --finish --rate 500 --timeout 60s &
sender=$!
network=${COMPOSE_PROJECT_NAME}_default
for service in windower projector ingest; do
  victim=$(first "$service")
  docker kill "$victim" >/dev/null
  other=$(last "$service")
  docker pause "$other" >/dev/null
  sleep 2 # frozen longer than a heartbeat
  docker unpause "$other" >/dev/null
  bring >/dev/null 2>&1
  echo "$service: one killed, the other frozen for 2 s"
done
cut=$(last windower)
docker network disconnect "$network" "$cut"
sleep 2 # cut off longer than a heartbeat
docker network connect "$network" "$cut"
echo "windower: one cut off for 2 s"
wait "$sender"

say "the result"
bin/tidemark wait flights --timeout 3m
rows=$(bin/tidemark windows flights -o ndjson | wc -l)
[ "$rows" -gt 10000 ] || { echo "only $rows windows" >&2; exit 1; }
bin/tidemark verify flights

say "SIGTERM drains within 20 s"
for service in windower projector ingest; do
  id=$(first "$service")
  before=$SECONDS
  docker stop --time 25 "$id" >/dev/null
  code=$(docker inspect --format '{{.State.ExitCode}}' "$id")
  [ "$code" = 0 ] || { echo "$service ended with $code" >&2; exit 1; }
  [ $((SECONDS - before)) -le 20 ] || { echo "$service took $((SECONDS - before)) s" >&2; exit 1; }
done

say "everything killed, nats too; the result stays"
"${compose[@]}" kill >/dev/null
bring
healthy
bin/tidemark wait flights --timeout 3m
bin/tidemark verify flights
echo "containers: $rows windows equal the oracle, after every fault"
