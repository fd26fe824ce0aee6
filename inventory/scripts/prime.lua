-- Put a sale and its stock, as the database knows them, into Redis. Safe to run at any time, any number of times.
-- KEYS  1 sale   2 stock   3 fence   4 in flight   5 line
-- ARGV  1 switch   2 opens_us   3 closes_us   4 limit   5 room   6 available   7 held   8 sold   9 returning
--       10 stock version   11 highest seq the database has seen   12 requests decided in the database
--       13 channel   14 sku   15 fence of the stock row   16 fence_ttl_ms
--       17 version of the terms   18 of those decided, requests of retired sales: Redis gets no record of them
-- Returns 1 when the stock was written, 0 when it was not: Redis knew this version or a newer one, or a batch is in
-- flight, whose settlement brings the stock after it.
-- Stays true: an older version never overwrites a newer one, of the terms as of the stock; seq never falls below what
-- was given out before (I18); units of a batch that is committed but not answered are not counted twice.
local stock = redis.call('HMGET', KEYS[2], 'version', 'last_seq', 'admitted', 'decided', 'waits_for')
local terms = tonumber(redis.call('HGET', KEYS[1], 'version') or '0')
if tonumber(ARGV[17]) >= terms then
  redis.call('HSET', KEYS[1], 'switch', ARGV[1], 'opens_us', ARGV[2], 'closes_us', ARGV[3], 'limit', ARGV[4],
    'room', ARGV[5], 'version', ARGV[17])
  if tonumber(ARGV[17]) > terms then
    local time = redis.call('TIME')
    local since = math.max(time[1] * 1000000 + time[2], tonumber(stock[2] or '0') + 1, tonumber(ARGV[11]) + 1)
    redis.call('HSET', KEYS[1], 'since_us', string.format('%.0f', since))
  end
end
if tonumber(ARGV[17]) > terms then redis.call('HINCRBY', KEYS[2], 'stirs', 1) end
if tonumber(ARGV[17]) > terms and stock[5] then
  -- What the line waited for may have come; who was told "waitlisted" still is.
  if stock[5] == 'waitlist' then redis.call('HSET', KEYS[2], 'waitlisted_to', stock[2] or '0') end
  redis.call('HDEL', KEYS[2], 'waits_for')
end
local last_seq = math.max(tonumber(stock[2] or '0'), tonumber(ARGV[11]))
redis.call('HSET', KEYS[2], 'last_seq', string.format('%.0f', last_seq))
-- A lock taken from an empty Redis whose clock is behind would otherwise get fences that the stock row refuses.
local fence = math.max(tonumber(redis.call('GET', KEYS[3]) or '0'), tonumber(ARGV[15]))
redis.call('SET', KEYS[3], string.format('%.0f', fence), 'PX', ARGV[16])
local flying = redis.call('ZCARD', KEYS[4])
if not stock[1] then
  -- Counters of an empty Redis begin where the database is; from then on only what comes and goes moves them.
  redis.call('HSET', KEYS[2], 'admitted', ARGV[12], 'decided', ARGV[12], 'forgotten', ARGV[18])
  if tonumber(ARGV[6]) == 0 and tonumber(ARGV[9]) > 0 then
    -- Nothing is free: whoever comes back with a ticket waits for a held unit, as they were told before.
    local time = redis.call('TIME')
    redis.call('HSET', KEYS[2], 'waitlisted_to', string.format('%.0f', time[1] * 1000000 + time[2]))
  end
end
if flying == 0 and redis.call('ZCARD', KEYS[5]) == 0 then redis.call('HSET', KEYS[2], 'queued', 0) end
local written = 0
if not stock[1] or (flying == 0 and tonumber(ARGV[10]) >= tonumber(stock[1])) then
  redis.call('HSET', KEYS[2], 'available', ARGV[6], 'held', ARGV[7], 'sold', ARGV[8], 'returning', ARGV[9],
    'version', ARGV[10])
  written = 1
end
redis.call('PUBLISH', ARGV[13], ARGV[14])
return written
