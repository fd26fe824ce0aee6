#!lua flags=allow-oom
-- Bring a request back whose place was lost with Redis, at the place its ticket names.
-- KEYS  1 stock   2 line   3 records   4 live units
-- ARGV  1 sku   2 wake channel   3 request_id   4 seq   5 units   6 sale_id   7 buyer
-- Returns 1 it waits again, 0 it is known here already, at a place as good (nothing changed), -1 the SKU is not primed (nothing changed).
-- Stays true: an id has one place, however often its ticket comes (I5, I14); its seq is the old one, and new ones stay
-- above it (I8, I18); it is not bound by the room: it was let in before; queued and its buyer's live units count what
-- its record says (I7, I15).
if redis.call('HEXISTS', KEYS[1], 'version') == 0 then return -1 end
local known = redis.call('HGET', KEYS[3], ARGV[3])
if known then
  -- Asked anew after the loss, before its ticket came, perhaps for other units: the ticket's place is the better one.
  local seq, units = string.match(known, '^q|(%d+)|(%d*)')
  if seq and tonumber(ARGV[4]) < tonumber(seq) and redis.call('ZSCORE', KEYS[2], ARGV[3]) then
    redis.call('ZADD', KEYS[2], ARGV[4], ARGV[3])
    redis.call('HSET', KEYS[3], ARGV[3], 'q|' .. ARGV[4] .. '|' .. ARGV[5] .. '|' .. ARGV[6] .. '|' .. ARGV[7] .. '|r')
    local waits = redis.call('HMGET', KEYS[1], 'waits_for', 'last_seq', 'queued')
    local more = tonumber(ARGV[5]) - (tonumber(units) or tonumber(ARGV[5])) -- of a damaged record they are unknown
    if more ~= 0 then
      redis.call('HINCRBY', KEYS[4], ARGV[6] .. ':' .. ARGV[7], more)
      redis.call('HSET', KEYS[1], 'queued', math.max(tonumber(waits[3] or '0') + more, 0))
    end
    if waits[1] == 'waitlist' then redis.call('HSET', KEYS[1], 'waitlisted_to', waits[2] or '0') end
    redis.call('HDEL', KEYS[1], 'waits_for')
    redis.call('HINCRBY', KEYS[1], 'stirs', 1)
    redis.call('PUBLISH', ARGV[2], ARGV[1])
    return 1
  end
  return 0
end
local stock = redis.call('HMGET', KEYS[1], 'last_seq', 'queued', 'admitted', 'waits_for')
redis.call('ZADD', KEYS[2], ARGV[4], ARGV[3])
redis.call('HSET', KEYS[3], ARGV[3], 'q|' .. ARGV[4] .. '|' .. ARGV[5] .. '|' .. ARGV[6] .. '|' .. ARGV[7] .. '|r')
redis.call('HINCRBY', KEYS[4], ARGV[6] .. ':' .. ARGV[7], ARGV[5])
redis.call('HSET', KEYS[1],
  'last_seq', string.format('%.0f', math.max(tonumber(stock[1] or '0'), tonumber(ARGV[4]))),
  'queued', tonumber(stock[2] or '0') + tonumber(ARGV[5]), 'admitted', tonumber(stock[3] or '0') + 1)
-- Its place may be before those who wait, so the line is looked at anew; who was told "waitlisted" still is.
if stock[4] == 'waitlist' then redis.call('HSET', KEYS[1], 'waitlisted_to', stock[1] or '0') end
redis.call('HDEL', KEYS[1], 'waits_for')
redis.call('HINCRBY', KEYS[1], 'stirs', 1)
redis.call('PUBLISH', ARGV[2], ARGV[1])
return 1
