#!lua flags=allow-oom
-- Set fields of a hash, and the units in line, right where they are still as they were read.
-- KEYS  1 stock   2 the hash: live units or records; or both the comparisons that staff asked for
-- ARGV  1 stock version   2 changes, both as they were then ('' for both = whatever they are now)
--       3 queued as it was   4 queued as it must be
--       then for each field (at most 1,000): its name, value as it was, as it must be ('0' = none)
-- Returns how many values were written, -1 when something has moved (nothing changed).
-- Stays true: what is not as it was then is left alone, so the one that changed it meanwhile is right (I7, I15, I19);
-- a repeated call changes nothing.
local now = redis.call('HMGET', KEYS[1], 'version', 'changes', 'queued')
if ARGV[1] ~= '' and (now[1] ~= ARGV[1] or (now[2] or '0') ~= ARGV[2]) then return -1 end
local mended = 0
if ARGV[3] ~= ARGV[4] and tonumber(now[3] or '0') == tonumber(ARGV[3]) then
  redis.call('HSET', KEYS[1], 'queued', ARGV[4])
  mended = 1
end
for i = 5, #ARGV, 3 do
  if (redis.call('HGET', KEYS[2], ARGV[i]) or '0') == ARGV[i + 1] then
    if ARGV[i + 2] ~= '0' then redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 2])
    else redis.call('HDEL', KEYS[2], ARGV[i]) end
    mended = mended + 1
  end
end
return mended
