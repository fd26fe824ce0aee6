#!/bin/sh
# Writes FILE, the configuration of a server of Redis or a Sentinel, which changes it when another server becomes the
# primary. What it has learned stays there from one start to the next; all else is written again, with today's password.
#   redis-state.sh FILE server     at its first start a replica of REPLICA_OF ("host port"), a primary when that is empty
#   redis-state.sh FILE sentinel   at its first start it watches PRIMARY ("host port")
set -euf

file=$1 kind=$2 secret=${REDIS_PASSWORD:?is not set}

# Two of three must agree that the primary is away, and a majority that one of them may appoint another one. By names,
# not addresses: a container that starts again may have another address.
sentinel_options() {
  cat <<END
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel sentinel-user operator
sentinel sentinel-pass $secret
sentinel auth-pass fairdrop $secret
sentinel down-after-milliseconds fairdrop 5000
sentinel failover-timeout fairdrop 10000
END
}

case $kind in
  server)
    options="masterauth $secret"
    learned="replicaof"
    first="${REPLICA_OF:+replicaof $REPLICA_OF}"
    ;;
  sentinel)
    # A shop that knows one server only would go on asking it when it is not the primary any more.
    [ "$REDIS_SCHEME" = redis+sentinel ] || { echo "set the variables of the profile sentinel in .env first" >&2; exit 1; }
    options=$(sentinel_options)
    learned="sentinel (monitor|myid|current-epoch|(config|leader)-epoch|known-(replica|slave|sentinel))"
    first="sentinel monitor fairdrop $PRIMARY 2"
    ;;
esac
known=$first
[ ! -s "$file" ] || known=$(grep -E "^$learned " "$file" || true)
printf '%s\n' "$known" "$options" > "$file.new"
mv "$file.new" "$file"
