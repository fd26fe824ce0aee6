-- Renew the lock, if it is ours, or only ask whether it is.
-- KEYS  1 lock
-- ARGV  1 token   2 milliseconds   3 'set': that much from now, 'add': that much more than is left, 'keep': at least
--       that much from now (a renewal: it never shortens what the holder asked for), 'look': nothing is written
-- Returns the pttl_ms after it, 0 when the lock is not ours any more (nothing changed).
-- Stays true: renewal never creates the key (L8); a lock that is granted but not taken is held by nobody; all but 'add'
-- may be sent twice.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local life, left = tonumber(ARGV[2]), redis.call('PTTL', KEYS[1])
if ARGV[3] == 'look' then return left end
if ARGV[3] == 'add' then life = life + math.max(left, 0) end
if ARGV[3] == 'keep' then life = math.max(life, left) end
redis.call('PEXPIRE', KEYS[1], life)
return life
