-- Compare a line's counters with what is there in this moment, and correct them.
-- KEYS  1 line   2 in flight   3 records   4 stock
-- ARGV  1 'mend' or 'look'
-- Returns {admitted as counted, decided as counted, admitted as it is, decided as it is}; nothing when not primed.
-- Stays true: every admitted request has its record or is forgotten, and every undecided one is in line, in flight or
-- set aside; so both counts follow from sizes read in one moment (I4).
local stock = redis.call('HMGET', KEYS[4], 'version', 'admitted', 'decided', 'aside', 'forgotten')
if not stock[1] then return {} end
local admitted = redis.call('HLEN', KEYS[3]) + tonumber(stock[5] or '0')
local decided = admitted - redis.call('ZCARD', KEYS[1]) - redis.call('ZCARD', KEYS[2]) - tonumber(stock[4] or '0')
local counted, done = tonumber(stock[2] or '0'), tonumber(stock[3] or '0')
if ARGV[1] == 'mend' and (counted ~= admitted or done ~= decided) then
  redis.call('HSET', KEYS[4], 'admitted', admitted, 'decided', decided)
end
return {counted, done, admitted, decided}
