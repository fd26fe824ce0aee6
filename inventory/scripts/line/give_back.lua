#!lua flags=allow-oom
-- Say that the batch in flight was not at fault: its holder stops, the database is away, or the fence was too low.
-- KEYS  1 lock   2 stock   3 fence (only with ARGV 2)
-- ARGV  1 token   2 fence that the stock row has seen   3 fence_ttl_ms (2 and 3 may be left out)
-- Returns 1 noted, -1 the token does not hold the lock and nothing changed.
-- Stays true: the batch stays in flight, first in turn; its first hand-out, of as many requests as are asked
-- for, is not counted (Q12); a fence never falls, and the next holder's is above what the stock row has seen.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
redis.call('HSET', KEYS[2], 'hand_call', '', 'hand_kind', 'given back', 'hand_count', 0)
if ARGV[2] and tonumber(ARGV[2]) > tonumber(redis.call('GET', KEYS[3]) or '0') then
  redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
end
return 1
