-- Renew the lock, if it is ours.
-- KEYS  1 lock
-- ARGV  1 token   2 milliseconds   3 'set': that much from now, 'add': that much more than is left, 'keep': at least
--       that much from now (a renewal: it never shortens what the holder asked for)
-- Returns the new pttl_ms, 0 when the lock is not ours any more (nothing changed).
-- Stays true: renewal never creates the key (L8); 'set' and 'keep' may be sent twice, 'add' must not.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local life = tonumber(ARGV[2])
if ARGV[3] == 'add' then life = life + math.max(redis.call('PTTL', KEYS[1]), 0) end
if ARGV[3] == 'keep' then life = math.max(life, redis.call('PTTL', KEYS[1])) end
redis.call('PEXPIRE', KEYS[1], life)
return life
