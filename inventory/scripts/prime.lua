-- Put a sale and its stock, as the database knows them, into Redis. Safe to run at any time, any number of times.
-- KEYS  1 sale   2 stock   3 fence   4 in flight   5 line
-- ARGV  1 switch   2 opens_us   3 closes_us   4 limit   5 room   6 available   7 held   8 sold   9 returning
--       10 stock version   11 highest seq the database has seen   12 requests decided in the database
--       13 channel   14 sku   15 fence of the stock row   16 fence_ttl_ms
--       17 version of the terms
-- Returns 1 when the stock was written, 0 when it was not: Redis knew this version or a newer one, or a batch is in
-- flight, whose settlement brings the stock after it.
-- Stays true: an older version never overwrites a newer one, of the terms as of the stock; seq never falls below what
-- was given out before (I18); units of a batch that is committed but not answered are not counted twice.
if tonumber(ARGV[17]) >= tonumber(redis.call('HGET', KEYS[1], 'version') or '0') then
  redis.call('HSET', KEYS[1], 'switch', ARGV[1], 'opens_us', ARGV[2], 'closes_us', ARGV[3], 'limit', ARGV[4],
    'room', ARGV[5], 'version', ARGV[17])
end
local stock = redis.call('HMGET', KEYS[2], 'version', 'last_seq', 'admitted', 'decided')
local last_seq = math.max(tonumber(stock[2] or '0'), tonumber(ARGV[11]))
redis.call('HSET', KEYS[2], 'last_seq', string.format('%.0f', last_seq))
-- A lock taken from an empty Redis whose clock is behind would otherwise get fences that the stock row refuses.
local fence = math.max(tonumber(redis.call('GET', KEYS[3]) or '0'), tonumber(ARGV[15]))
redis.call('SET', KEYS[3], string.format('%.0f', fence), 'PX', ARGV[16])
-- Counters of an empty Redis begin where the database is; those that admissions have moved never fall.
local decided = tonumber(ARGV[12])
redis.call('HSET', KEYS[2], 'admitted', math.max(tonumber(stock[3] or '0'), decided))
local flying = redis.call('ZCARD', KEYS[4])
-- While a batch is in flight it may be committed already; its settlement will count it.
if flying == 0 then redis.call('HSET', KEYS[2], 'decided', math.max(tonumber(stock[4] or '0'), decided)) end
if flying == 0 and redis.call('ZCARD', KEYS[5]) == 0 then redis.call('HSET', KEYS[2], 'queued', 0) end
local written = 0
if not stock[1] or (flying == 0 and tonumber(ARGV[10]) >= tonumber(stock[1])) then
  redis.call('HSET', KEYS[2], 'available', ARGV[6], 'held', ARGV[7], 'sold', ARGV[8], 'returning', ARGV[9],
    'version', ARGV[10])
  written = 1
end
redis.call('PUBLISH', ARGV[13], ARGV[14])
return written
