#!lua flags=allow-oom
-- Give the lock back, if it is ours: to the one that has waited longest, or to anyone.
-- KEYS  1 lock   2 signals   3 waiters
-- ARGV  1 token   2 grant_ttl_ms   3 nonce of this release   4 '1' hand the lock on, '0' only wake a waiter
-- Returns 1 free, 2 handed on (also when this very release is sent again), 0 nobody held it, -1 another holds it
-- (nothing changed).
-- Stays true: only the owner's token can end its hold (S3, S9); one release wakes one waiter, the one blocked longest;
-- while a grant runs nobody can push in (L13), and a waiter that died holds the others up for the grant's TTL (L14).
local holder = redis.call('GET', KEYS[1])
if not holder then return 0 end
if holder == 'g:' .. ARGV[3] then return 2 end
if holder ~= ARGV[1] then return -1 end
if redis.call('EXISTS', KEYS[3]) == 1 then
  local time = redis.call('TIME')
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', '(' .. time[1] * 1000 + math.floor(time[2] / 1000))
  if redis.call('EXISTS', KEYS[3]) == 1 then
    redis.call('DEL', KEYS[2])
    redis.call('RPUSH', KEYS[2], ARGV[3])
    redis.call('PEXPIRE', KEYS[2], ARGV[2])
    if ARGV[4] == '1' then
      redis.call('SET', KEYS[1], 'g:' .. ARGV[3], 'PX', ARGV[2])
      return 2
    end
  end
end
redis.call('DEL', KEYS[1])
return 1
