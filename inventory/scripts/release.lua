-- Give the lock back, if it is ours.
-- KEYS  1 lock
-- ARGV  1 token
-- Returns 1 released, 0 nobody held it, -1 another token holds it (nothing changed).
-- Stays true: only the owner's token can end its hold (S3, S9).
local holder = redis.call('GET', KEYS[1])
if not holder then return 0 end
if holder ~= ARGV[1] then return -1 end
redis.call('DEL', KEYS[1])
return 1
