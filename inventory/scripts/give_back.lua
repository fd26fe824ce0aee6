-- Say that the batch in flight was not at fault: its holder stops, or the database is away.
-- KEYS  1 lock   2 stock
-- ARGV  1 token
-- Returns 1 noted, -1 the token does not hold the lock and nothing changed.
-- Stays true: the batch stays in flight, first in turn; the next hand-out of it is not counted (Q12).
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
redis.call('HSET', KEYS[2], 'hand_call', '', 'hand_kind', 'given back', 'hand_count', 0)
return 1
