-- Look at a SKU's line for the audit: sizes, counters, figures, and who is first, in one moment.
-- KEYS  1 line   2 in flight   3 stock   4 dead letters   5 records
-- ARGV  1 most requests whose units are added up
-- Returns a flat list: waiting, flying, in both, admitted, decided, queued units, dead letters, set aside,
--   1 when the SKU is primed, stock version, available, held, sold, how many of those who wait were told "waitlisted",
--   units in line and in flight by their records (-1: too many to add up, or a record is damaged), records,
--   the server's clock in µs, when the line last had to wait in µs (0 never), what for ('' nothing),
--   the first in flight or else in line and its record ('' for none), the first few dead letters (spaces between).
-- Stays true: reads only.
local flying = redis.call('ZRANGE', KEYS[2], 0, -1)
local waiting = redis.call('ZCARD', KEYS[1])
local both = 0
for _, id in ipairs(flying) do
  if redis.call('ZSCORE', KEYS[1], id) then both = both + 1 end
end
local stock = redis.call('HMGET', KEYS[3], 'admitted', 'decided', 'queued', 'aside', 'version', 'available', 'held',
  'sold', 'waits_for', 'waits_us', 'waitlisted_to', 'queued_unsure')
local function number(field) return tonumber(stock[field] or '0') end

local waitlisted = waiting + #flying
if stock[9] ~= 'waitlist' then
  local told = stock[11] or '0'
  waitlisted = redis.call('ZCOUNT', KEYS[1], '-inf', told) + redis.call('ZCOUNT', KEYS[2], '-inf', told)
end

local units = -1
if not stock[12] and waiting + #flying <= tonumber(ARGV[1]) then
  units = 0
  local ids = redis.call('ZRANGE', KEYS[1], 0, -1)
  for _, id in ipairs(flying) do
    if not redis.call('ZSCORE', KEYS[1], id) then ids[#ids + 1] = id end
  end
  local records = #ids > 0 and redis.call('HMGET', KEYS[5], unpack(ids)) or {}
  for i = 1, #ids do
    local quantity = tonumber(string.match(records[i] or '', '^%a|%d+|(%d+)|') or '')
    if quantity and units >= 0 then units = units + quantity else units = -1 end
  end
end

local first = flying[1] or redis.call('ZRANGE', KEYS[1], 0, 0)[1] or ''
local record = first ~= '' and redis.call('HGET', KEYS[5], first) or ''
local time = redis.call('TIME')
return {waiting, #flying, both, number(1), number(2), number(3), redis.call('ZCARD', KEYS[4]), number(4),
  stock[5] and 1 or 0, number(5), number(6), number(7), number(8), waitlisted, units, redis.call('HLEN', KEYS[5]),
  time[1] * 1000000 + time[2], number(10), stock[9] or '', first, record or '',
  table.concat(redis.call('ZRANGE', KEYS[4], 0, 2), ' ')}
