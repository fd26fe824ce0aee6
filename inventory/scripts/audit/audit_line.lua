-- Look at a SKU's line: sizes, figures, and who is first, in one moment.
-- KEYS  1 line   2 in flight   3 stock   4 dead letters   5 records   6 set aside   7 sales
-- ARGV  1 most requests whose units are added up   2 the sale whose admissions are counted, '' = all
-- Returns a flat list: waiting, in_flight, in both, admitted since ordinals last jumped, queued units,
--   dead letters, set aside, 1 when the SKU is primed, stock version, available, held, sold, how many of those who wait
--   were told "waitlisted", units in line and in flight by their records (-1: too many to add up, or a record is
--   damaged), records, the server's clock in µs, the first in flight or else in line and its record ('' for none; where
--   all are on standby: the first for whom enough is free, if there is one),
--   what is known of that record's sale ('' for nothing), the first few dead letters (spaces between), the bases added
--   up, dead letters that were discarded because nobody could read them, 1 when the sale of ARGV 2 was primed at another
--   server, or before this one was started: then it may have lost admissions, and the next ask primes the sale; and the
--   moment in µs before which nobody in line is decided, as tickets have time to come after a loss (0 for none).
-- Stays true: reads only.
-- Shared: decides_from
-- Shared: head_waits
local in_flight = redis.call('ZRANGE', KEYS[2], 0, -1)
local waiting = redis.call('ZCARD', KEYS[1])
local both = 0
for _, id in ipairs(in_flight) do
  if redis.call('ZSCORE', KEYS[1], id) then both = both + 1 end
end
local stock = redis.call('HMGET', KEYS[3], 'queued', 'version', 'available', 'held', 'sold', 'waitlisted_to',
  'queued_unsure', 'discarded')
local function number(field) return tonumber(stock[field] or '0') end

local admitted, bases, replaced = 0, 0, 0
local sales = redis.call('HGETALL', KEYS[7])
for i = 1, #sales, 2 do
  local sale = string.match(sales[i], '^(%d+):ordinals$')
  if sale and (ARGV[2] == '' or sale == ARGV[2]) then
    local last, base, run_id = string.match(sales[i + 1], '^(%d+)|(%d+)|(%x*)')
    admitted, bases = admitted + tonumber(last) - tonumber(base), bases + tonumber(base)
    if sale == ARGV[2] and run_id ~= string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') then replaced = 1 end
  end
end

local first = in_flight[1] or redis.call('ZRANGE', KEYS[1], 0, 0)[1] or ''
local record = first ~= '' and redis.call('HGET', KEYS[5], first) or ''
if string.sub(record, 1, 1) == 'b' and #in_flight == 0 and number(3) > 0 then
  local ids = redis.call('ZRANGE', KEYS[1], 0, -1)
  for i, text in ipairs(redis.call('HMGET', KEYS[5], unpack(ids))) do
    local units = tonumber(string.match(text or '', '^b|%d+|(%d+)|') or '')
    if units and units <= number(3) then
      first, record = ids[i], text
      break
    end
  end
end
local sale = string.match(record, '^%a|%d+|%d+|(%d+)|')
local waitlisted = waiting + #in_flight - redis.call('ZCOUNT', KEYS[1], STANDBY, '+inf')
  - redis.call('ZCOUNT', KEYS[2], STANDBY, '+inf')
if not head_waits(2, 1, 5, number(3), number(4)) then
  local told = stock[6] or '0'
  waitlisted = redis.call('ZCOUNT', KEYS[1], '-inf', told) + redis.call('ZCOUNT', KEYS[2], '-inf', told)
end

local units = -1
if not stock[7] and waiting + #in_flight <= tonumber(ARGV[1]) then
  units = 0
  local ids = redis.call('ZRANGE', KEYS[1], 0, -1)
  for _, id in ipairs(in_flight) do
    if not redis.call('ZSCORE', KEYS[1], id) then ids[#ids + 1] = id end
  end
  local records = #ids > 0 and redis.call('HMGET', KEYS[5], unpack(ids)) or {}
  for i = 1, #ids do
    local had = tonumber(string.match(records[i] or '', '^%a|%d+|(%d+)|') or '')
    if had and units >= 0 then units = units + had else units = -1 end
  end
end

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
return {waiting, #in_flight, both, admitted, number(1), redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[6]),
  stock[2] and 1 or 0, number(2), number(3), number(4), number(5), waitlisted, units, redis.call('HLEN', KEYS[5]),
  now_us, first, record, sale and redis.call('HGET', KEYS[7], sale) or '',
  table.concat(redis.call('ZRANGE', KEYS[4], 0, 2), ' '), bases, number(8), replaced,
  decides_from(3, now_us)}
