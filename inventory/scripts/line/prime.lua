#!lua flags=allow-oom
-- Put a sale and its stock, as the database knows them, into Redis. Safe to run at any time, any number of times.
-- KEYS  1 sales   2 stock   3 fence   4 in flight   5 line   6 records
-- ARGV  1 sale_id   2 the sale: "state|opens_us|closes_us|limit|capacity|revision|terms version"   3 revision
--       4 the ordinal after which ordinals go on, with '+' after it when they may begin there: the sale is new, or the
--       ordinal was moved for this server
--       5 available   6 held   7 sold   8 stock version   9 highest seq the database has seen   10 settled channel
--       11 sku   12 fence of the stock row   13 fence_ttl_ms   14 for how long an empty Redis decides nobody, in µs
--       then for each terms version of the sale: version, "limit|price|currency", "version:hold", its hold in seconds
-- Returns 1 when the stock was written, 0 when it was not: Redis knew this version or a newer one, or a batch is in
-- flight, whose settlement brings the stock after it. 2 when nothing was written because this server has lost the last
-- ordinals it gave, or may have: it was started since the sale was primed. So they must be moved first.
-- Stays true: an older revision or stock version never overwrites a newer one; terms of a version never change; seq and
-- ordinal never fall below what was given out before (I18); units of a batch that is committed but not answered are not
-- counted twice; who was told "waitlisted" stays so.
-- Shared: head_waits
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
local stock = redis.call('HMGET', KEYS[2], 'version', 'last_seq', 'available', 'held')
local found = redis.call('HMGET', KEYS[1], ARGV[1], ARGV[1] .. ':ordinals')

local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local last, base, primed_by = string.match(found[2] or '', '^(%d+)|(%d+)|(%x+)$')
local from, begins = string.match(ARGV[4], '^(%d+)(%+?)$')
if primed_by ~= run_id and begins == '' then return 2 end
local ordinals = {math.max(tonumber(last or '0'), tonumber(from)), math.max(tonumber(base or '0'), tonumber(from))}
if last and primed_by ~= run_id then redis.call('HDEL', KEYS[2], 'discarded') end
redis.call('HSET', KEYS[1], ARGV[1] .. ':ordinals', string.format('%.0f|%.0f|%s', ordinals[1], ordinals[2], run_id))

for i = 15, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[1] .. ':terms:' .. ARGV[i], ARGV[i + 1]) end
local revision = tonumber(string.match(found[1] or '', '^%a+|%d+|%d+|%d+|%d+|(%d+)|') or '-1')
if tonumber(ARGV[3]) > revision then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. '|' .. now) end

local last_seq = string.format('%.0f', math.max(tonumber(stock[2] or '0'), tonumber(ARGV[9])))
if stock[1] then
  local waits = head_waits(4, 5, 6, tonumber(stock[3] or '0'), tonumber(stock[4] or '0'))
  if waits then redis.call('HSET', KEYS[2], 'waitlisted_to', last_seq) end
elseif tonumber(ARGV[6]) > 0 then
  -- Those who come back with a ticket may have been told before that they wait for a held unit.
  redis.call('HSET', KEYS[2], 'waitlisted_to', now)
end
redis.call('HSET', KEYS[2], 'last_seq', last_seq)
redis.call('HINCRBY', KEYS[2], 'changes', 1)
-- A lock taken from an empty Redis whose clock is behind would otherwise get fences that the stock row refuses.
local fence = math.max(tonumber(redis.call('GET', KEYS[3]) or '0'), tonumber(ARGV[12]))
redis.call('SET', KEYS[3], string.format('%.0f', fence), 'PX', ARGV[13])
local in_flight = redis.call('ZCARD', KEYS[4])
if not stock[1] and tonumber(ARGV[14]) > 0 then
  local from_us = string.format('%.0f', tonumber(now) + tonumber(ARGV[14]))
  redis.call('HSET', KEYS[2], 'decide_from_us', from_us, 'decide_grace_us', ARGV[14])
end
if in_flight + redis.call('ZCARD', KEYS[5]) == 0 then redis.call('HSET', KEYS[2], 'queued', 0) end
local written = 0
if not stock[1] or (in_flight == 0 and tonumber(ARGV[8]) >= tonumber(stock[1])) then
  redis.call('HSET', KEYS[2], 'available', ARGV[5], 'held', ARGV[6], 'sold', ARGV[7], 'version', ARGV[8])
  if tonumber(ARGV[5]) + tonumber(ARGV[6]) == 0 then redis.call('HSET', KEYS[2], 'reopens_us', '0') end
  written = 1
end
redis.call('PUBLISH', ARGV[10], ARGV[11])
return written
