-- Look at a SKU's line as a whole, in one moment.
-- KEYS  1 line   2 in flight   3 stock   4 dead letters
-- ARGV  none
-- Returns {waiting, flying, in both, admitted, decided, queued units, dead letters, set aside}, all integers.
-- Stays true: reads only.
local flying = redis.call('ZRANGE', KEYS[2], 0, -1)
local both = 0
for _, id in ipairs(flying) do
  if redis.call('ZSCORE', KEYS[1], id) then both = both + 1 end
end
local stock = redis.call('HMGET', KEYS[3], 'admitted', 'decided', 'queued', 'aside')
return {redis.call('ZCARD', KEYS[1]), #flying, both, tonumber(stock[1] or '0'), tonumber(stock[2] or '0'),
  tonumber(stock[3] or '0'), redis.call('ZCARD', KEYS[4]), tonumber(stock[4] or '0')}
