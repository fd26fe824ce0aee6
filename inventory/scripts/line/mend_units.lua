#!lua flags=allow-oom
-- Correct buyers' live units and the units in line, if nothing has moved since they were added up.
-- KEYS  1 stock   2 live units
-- ARGV  1 stock version   2 changes, both as they were then   3 queued as it was   4 queued as it must be
--       then for each buyer: live field, units as they were, units as they must be   (at most 1,000; 0 = none)
-- Returns how many figures were corrected, -1 when something has moved (nothing changed).
-- Stays true: a figure that is not what it was then is left alone, so the one that changed it meanwhile is right (I7, I15).
local now = redis.call('HMGET', KEYS[1], 'version', 'changes', 'queued')
if now[1] ~= ARGV[1] or (now[2] or '0') ~= ARGV[2] then return -1 end
local mended = 0
if ARGV[3] ~= ARGV[4] and tonumber(now[3] or '0') == tonumber(ARGV[3]) then
  redis.call('HSET', KEYS[1], 'queued', ARGV[4])
  mended = 1
end
for i = 5, #ARGV, 3 do
  if tonumber(redis.call('HGET', KEYS[2], ARGV[i]) or '0') == tonumber(ARGV[i + 1]) then
    if tonumber(ARGV[i + 2]) > 0 then redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 2])
    else redis.call('HDEL', KEYS[2], ARGV[i]) end
    mended = mended + 1
  end
end
return mended
