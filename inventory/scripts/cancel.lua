-- Stop waiting for a lock.
-- KEYS  1 waiters
-- ARGV  1 token
-- Returns 1 when the token was noted as waiting, 0 when it was not.
-- Stays true: nobody else's place is touched; a grant that nobody fetches ends by its TTL.
return redis.call('ZREM', KEYS[1], ARGV[1])
