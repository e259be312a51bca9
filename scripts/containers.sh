#!/usr/bin/env bash
# Builds the images from source, brings the stack up with two instances of every service,
# sends the flights through it while instances are killed, frozen and cut off, and checks
# the result with `tidemark verify`; then rewards, while effectors are killed and frozen and
# the provider loses answers, and asks the provider's own log. Leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/.."

if docker compose version >/dev/null 2>&1; then compose=(docker compose)
elif command -v docker-compose >/dev/null; then compose=(docker-compose)
else echo "neither docker compose nor docker-compose is installed" >&2; exit 1; fi

export GO_IMAGE=${GO_IMAGE:-tidemark-golang:local}
if [ "$GO_IMAGE" = tidemark-golang:local ]; then scripts/base-image.sh "$GO_IMAGE"; fi
export COMPOSE_PROJECT_NAME=tidemark-e2e-$$
export NATS_PORT=${NATS_PORT:-14222} INGEST_PORT=${INGEST_PORT:-18080-18089} PROJECTOR_PORT=${PROJECTOR_PORT:-18090-18099}
export EFFECTOR_PORT=${EFFECTOR_PORT:-18100} PROVIDER_PORT=${PROVIDER_PORT:-19400}
export COMPOSE_PROFILES=two-effectors,provider
work=$(mktemp -d)

end() {
  code=$?
  if [ $code -ne 0 ]; then "${compose[@]}" logs --tail=40 || true; fi
  "${compose[@]}" down --volumes --remove-orphans --timeout 25
  rm -r "$work"
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
  for service in nats ingest windower projector effector effector-2 provider-sim; do
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
docker inspect --format '{{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}}' $(ids windower) $(ids effector) $(ids effector-2) |
  while read -r user rest; do
    [ "$user $rest" = "65532:65532 true [ALL]" ] || { echo "a container runs as '$user $rest'" >&2; exit 1; }
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

say "rewards flow while effectors are killed and frozen, and answers are lost"
# The example's provider is in another container here and loses a third of its answers, at
# which the breaker of a real one ought to open.
sed -e 's|http://127.0.0.1:9400|http://provider-sim:9400|' -e 's|allow: .*|allow: [10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16]|' \
  -e 's|^rate: .*|&\nbreaker: {consecutive: 30, window: 50, percent: 90, cooldown: 1s}|' \
  examples/rewards/rewards.yaml >"$work/rewards.yaml"
bin/tidemark apply -f examples/orders/orders.yaml -f "$work/rewards.yaml"
curl -fsS -X PUT -d '{"mode":"accept=6,lose-answer=1,execute-502=1,drop=1","seed":7}' "http://127.0.0.1:$PROVIDER_PORT/v1/control/mode" >/dev/null
rewards=0
for hour in 10 11 12 13 14 15; do
  for minute in $(seq 10 39); do
    rewards=$((rewards + 1))
    # Every region sells enough for a reward in one hour; a shop that sells little moves time on.
    printf '{"id":"s-%d","order":{"region":"region-%d","occurred_at":"2025-06-02T%d:%d:00Z","amount":"12000.00"}}\n' "$rewards" "$minute" "$hour" "$minute" >&3
    printf '{"id":"q-%d","order":{"region":"quiet","occurred_at":"2025-06-02T%d:%d:00Z","amount":"1.00"}}\n' "$rewards" "$hour" "$minute" >&4
  done
done 3>"$work/sales.jsonl" 4>"$work/quiet.jsonl"
bin/tidemark send "$work/sales.jsonl" --stream orders --source shop --partition 0 --finish --rate 9 --timeout 60s &
sales=$!
bin/tidemark send "$work/quiet.jsonl" --stream orders --source shop --partition 1 --finish --rate 9 --timeout 60s &
quiet=$!
one=$(ids effector) two=$(ids effector-2)
for round in 1 2; do
  sleep 4 # while effects are sent
  docker kill "$one" >/dev/null
  docker pause "$two" >/dev/null
  docker start "$one" >/dev/null
  sleep 5 # frozen longer than its leases last
  docker unpause "$two" >/dev/null
  echo "round $round: one effector killed, the other frozen for 5 s"
done
wait "$sales" "$quiet"
bin/tidemark wait orders --timeout 3m

say "every reward is settled, and ran once"
# count answers how many rewards are in the states given.
count() { { bin/tidemark effects ls orders --state "$1" -o ndjson || [ $? = 6 ]; } | wc -l; }
for _ in $(seq 90); do
  settled=$(count ACKED,RECONCILED)
  [ "$settled" = "$rewards" ] && break
  sleep 1 # between two looks at the journals
done
[ "$settled" = "$rewards" ] || { echo "only $settled of $rewards rewards are settled" >&2; bin/tidemark effects ls orders >&2 || true; exit 1; }
# once asks the provider's log, which exits 1 if a key was carried out twice.
once() {
  ran=$(docker exec "$(ids provider-sim)" /tidemark provider-sim log /state/executions.ndjson -o ndjson | wc -l)
  [ "$ran" = "$rewards" ] || { echo "the provider carried out $ran of $rewards rewards" >&2; exit 1; }
}
once
bin/tidemark verify orders
echo "$rewards rewards ran once each, $(count RECONCILED) of them found again after a lost answer"

say "SIGTERM drains within 20 s"
for service in windower projector ingest effector effector-2; do
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
bin/tidemark verify orders
once
echo "containers: $rows windows equal the oracle and $rewards rewards ran once, after every fault"
