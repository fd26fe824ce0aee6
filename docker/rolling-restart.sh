#!/bin/sh
# Replaces the containers of services one by one, while the shop goes on: a new one is started and must be healthy
# before an old one is asked to leave. Services: those that are named, else web and every worker that runs.
# Stops at the first that does not become healthy, and takes nothing away then. Calls Docker Compose only.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- web settler expirer payments reconciler mailer notary sandbox
# A web container drains for 5 s, then may take 10 s for its last answers; `stop_grace_period` is the same.
grace_seconds=20

replace() { # replace SERVICE OLD: with one more started before it, and none of the others touched
  docker compose up --detach --no-deps --no-recreate --wait --scale "$1=$(($(count "$1") + 1))" "$1"
  docker stop --time "$grace_seconds" "$2" > /dev/null
  docker rm "$2" > /dev/null
}

running() { docker compose ps --quiet --status running "$1"; }
count() { running "$1" | wc -l; }

for service in "$@"; do
  docker compose rm --force "$service" > /dev/null # else a stopped one, of the old version, would be the one more
  before=$(running "$service")
  for old in $before; do
    echo "$service: replacing $old"
    replace "$service" "$old"
  done
done
