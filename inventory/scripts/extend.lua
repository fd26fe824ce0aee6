-- Renew the lock, if it is ours.
-- KEYS  1 lock
-- ARGV  1 token   2 ttl_ms
-- Returns 1 renewed, 0 not ours any more (nothing changed).
-- Stays true: renewal never creates the key (L8).
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
