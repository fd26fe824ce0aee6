#!/bin/sh
# Prints the users of Redis or Valkey as an ACL file: one for each kind of process, with the keys, channels and commands
# that it needs, and `default` for the operator. Passwords come from the environment and must be letters and digits.
# --before-7.2: for a Redis that does not know client|setinfo, and refuses a file that names it (Debian 12 has 7.0).
# --sentinel: the users of a Sentinel.
set -euf

# What the scripts that work on a line, a lock or a place call, and the commands that are sent alone.
hello="+ping +select +client|setname"
[ "${1:-}" = --before-7.2 ] || hello="$hello +client|setinfo"
scripts="+eval +evalsha +script|load"
beat="+time +hset +hgetall +hdel +pexpire"
records="+exists +get +hexists +hget +hincrby +hlen +hmget +hsetnx +publish +zadd +zcard +zmscore +zrange +zrank +zrem
  +zscore"
line="+info +del +hkeys +hscan +lindex +pttl +rpush +sadd +set +sismember +smembers +srem +unlink +zcount
  +zrangebyscore +zremrangebyscore +zscan"
locks="+blpop +srandmember"
cache="+setex +psetex +mget +expire +incrby +ttl"
hints="+subscribe +unsubscribe"

# Every key of a SKU; those that an order's end is told to; those that say who waits; and those that a worker speaks
# through.
sku="~fd:{*}:*"
ends="~fd:{*}:lock ~fd:{*}:flight ~fd:{*}:records ~fd:{*}:stock ~fd:{*}:handouts ~fd:{*}:live ~fd:{*}:line
  ~fd:{*}:aside ~fd:{*}:givenup ~fd:{*}:sales"
waits="~fd:{*}:line ~fd:{*}:flight ~fd:{*}:aside ~fd:{*}:records ~fd:{*}:sales"
lists="~fd:skus ~fd:locks"
alive="~fd:workers"
told="&fd:wake &fd:settled"

password() { printenv "$1" || { echo "$1 is not set" >&2; return 1; }; }
user() { # user NAME VARIABLE RIGHTS...
  name=$1 secret=$(password "$2")
  shift 2
  # shellcheck disable=SC2086 # the words of each group are words of the line
  echo user "$name" reset on ">$secret" $*
}

# Anyone on its network may ask a Sentinel where the primary is, without a password, so no process of the shop needs one.
# To name another primary, to which every process would then show its password, takes the operator's.
if [ "${1:-}" = --sentinel ]; then
  echo "user default reset on nopass +ping +client|setinfo +sentinel|masters +sentinel|get-master-addr-by-name"
  user operator REDIS_PASSWORD "&*" +@all
  exit
fi

user default REDIS_PASSWORD "~*" "&*" +@all
user web FAIRDROP_WEB_PASSWORD "~fd:* ~fd-cache:*" "$told &fd:replicas" "$hello $scripts $beat $records $line $locks" \
  "$cache $hints +wait"
user settler FAIRDROP_SETTLER_PASSWORD "$sku $lists $alive" "$told" "$hello $scripts $beat $records $line $locks $hints"
user expirer FAIRDROP_EXPIRER_PASSWORD "$ends $alive" "$told" "$hello $scripts $beat $records"
user payments FAIRDROP_PAYMENTS_PASSWORD "$ends $alive" "$told" "$hello $scripts $beat $records"
user reconciler FAIRDROP_RECONCILER_PASSWORD "$sku $lists $alive ~fd:reconciliations" "$told" \
  "$hello $scripts $beat $records $line $locks +expire"
user mailer FAIRDROP_MAILER_PASSWORD "$alive" "$hello $scripts $beat"
user notary FAIRDROP_NOTARY_PASSWORD "$waits ~fd:checkpoints $alive" \
  "$hello $scripts $beat +hget +hlen +hmget +hsetnx +zrangebyscore"
