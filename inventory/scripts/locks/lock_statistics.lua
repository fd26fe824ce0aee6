-- Add what one process counted about one lock.
-- KEYS  1 lock statistics
-- ARGV  1 ttl_ms   2 how many fields are added up   then field, number pairs: first those, then those of which the
--       highest is kept
-- Returns how many fields were written.
-- Stays true: counters only rise; a highest value never falls. Not safe to send twice: it is sent once, or lost.
local added = tonumber(ARGV[2])
for i = 3, #ARGV, 2 do
  if (i - 1) / 2 <= added then
    redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1])
  elseif tonumber(ARGV[i + 1]) > tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or '-1') then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return (#ARGV - 2) / 2
