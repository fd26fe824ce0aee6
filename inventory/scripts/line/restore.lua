#!lua flags=allow-oom
-- Put requests back into their line at their own seq: lost with Redis and shown by a ticket, or in no place at all.
-- KEYS  1 stock   2 line   3 records   4 live units   5 in flight   6 dead letters   7 sales
-- ARGV  1 sku   2 wake channel   then for each: request_id, and the record its ticket speaks of, '' for the record that
--       is there   (at most 500)
-- Returns how many were put back, -1 when the SKU, or the sale of a ticket, is not primed (nothing changed).
-- Stays true: an id has one place, however often its ticket comes (I5, I14, I17); its seq is the old one, or the better
-- one of two, and new ones stay above it (I8, I18); it is not bound by the line capacity: it was let in before; queued
-- and its buyer's live units count what its record says (I7, I15); it is marked as brought back, because later ones may
-- have been decided; who was told "waitlisted" stays so.
-- Shared: head_waits
local stock = redis.call('HMGET', KEYS[1], 'version', 'last_seq', 'queued', 'available', 'held')
if not stock[1] then return -1 end
for i = 4, #ARGV, 2 do
  local sale = string.match(ARGV[i], '^%a|%d+|%d+|(%d+)|')
  if sale and redis.call('HEXISTS', KEYS[7], sale) == 0 then return -1 end
end
local queued, last_seq = tonumber(stock[3] or '0'), tonumber(stock[2] or '0')
local waited = head_waits(5, 2, 3, tonumber(stock[4] or '0'), tonumber(stock[5] or '0'))
local back = 0

local function put(id, record, seq)
  redis.call('ZADD', KEYS[2], line_score(record), id)
  redis.call('HSET', KEYS[3], id, string.match(record, '|r$') and record or record .. '|r')
  last_seq = math.max(last_seq, tonumber(seq))
  back = back + 1
end
local function count(record, units, factor)
  local sale, buyer = string.match(record, '^%a|%d+|%d+|(%d+)|([^|]+)')
  redis.call('HINCRBY', KEYS[4], sale .. ':' .. buyer, factor * units)
  queued = math.max(queued + factor * units, 0)
end

for i = 3, #ARGV, 2 do
  local id, record = ARGV[i], ARGV[i + 1]
  local known = redis.call('HGET', KEYS[3], id)
  local seq, units = string.match(known or '', '^[qb]|(%d+)|(%d+)|%d+|[^|]+')
  local new_seq, new_units = string.match(record, '^[qb]|(%d+)|(%d+)|')
  local placed = redis.call('ZSCORE', KEYS[5], id) or redis.call('ZSCORE', KEYS[6], id)
  if not known and new_seq then
    count(record, tonumber(new_units), 1)
    put(id, record, new_seq)
  elseif seq and not placed and redis.call('ZSCORE', KEYS[2], id) then
    -- Asked again after the loss, before its ticket came, perhaps for other units: the ticket's place is the better one.
    if new_seq and tonumber(new_seq) < tonumber(seq) then
      count(known, tonumber(units), -1)
      count(record, tonumber(new_units), 1)
      -- The ordinal stays the last one that was given for it (I4).
      local ordinal = string.match(known, '^[qb]|%d+|%d+|%d+|[^|]+|%d+%.(%d+)') or '0'
      local place, terms = string.match(record, '^([qb]|%d+|%d+|%d+|[^|]+)|?(%d*)')
      put(id, place .. '|' .. (terms == '' and '0' or terms) .. '.' .. ordinal, new_seq)
    end
  elseif seq and not placed then
    put(id, known, seq)
  end
end
if back > 0 then
  if waited then redis.call('HSET', KEYS[1], 'waitlisted_to', stock[2] or '0') end
  redis.call('HSET', KEYS[1], 'last_seq', string.format('%.0f', last_seq), 'queued', queued)
  redis.call('HINCRBY', KEYS[1], 'changes', 1)
  redis.call('PUBLISH', ARGV[2], ARGV[1])
end
return back
