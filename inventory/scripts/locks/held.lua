-- Ask whether this token holds the lock.
-- KEYS  1 lock   2 fence
-- ARGV  1 token
-- Returns {pttl_ms, fence} when it does, {0, 0} when it does not.
-- Stays true: nothing is written; a lock that is granted but not taken is held by nobody.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {0, 0} end
return {redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) or 0}
