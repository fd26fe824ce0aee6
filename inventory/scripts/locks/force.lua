#!lua flags=allow-oom
-- Take the lock away from its holder, for an operator.
-- KEYS  1 lock   2 fence   3 signals   4 waiters
-- ARGV  1 fence_ttl_ms   2 grant_ttl_ms   3 nonce of this call   4 the holder's token, '' for any holder or none
-- Returns the new fence, as text; no holder was given it, the next gets a higher one. '0' when that token does not hold
-- the lock (nothing changed).
-- Stays true: the fence is above the old holder's, so once the next holder has shown its own the old one is refused;
-- one waiter is woken. The same call sent again changes nothing while its grant runs.
local fence = redis.call('GET', KEYS[2])
if fence and redis.call('GET', KEYS[1]) == 'g:' .. ARGV[3] then return fence end
if ARGV[4] ~= '' and redis.call('GET', KEYS[1]) ~= ARGV[4] then return '0' end
local time = redis.call('TIME')
local text = string.format('%.0f', math.max(tonumber(fence or '0') + 1, time[1] * 1000000 + time[2]))
redis.call('SET', KEYS[2], text, 'PX', ARGV[1])
redis.call('DEL', KEYS[1], KEYS[3])
redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', '(' .. time[1] * 1000 + math.floor(time[2] / 1000))
if redis.call('EXISTS', KEYS[4]) == 1 then
  redis.call('RPUSH', KEYS[3], ARGV[3])
  redis.call('PEXPIRE', KEYS[3], ARGV[2])
  redis.call('SET', KEYS[1], 'g:' .. ARGV[3], 'PX', ARGV[2])
end
return text
