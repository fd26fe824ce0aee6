#!lua flags=allow-oom
-- Tell what became of requests whose orders changed in the database, and how the stock stands after it.
-- KEYS  1 stock   2 records   3 live units   4 line   5 holds   6 in flight   7 dead letters
-- ARGV  1 sku   2 settled channel   3 wake channel   4 available   5 held   6 sold   7 returning   8 stock version
--       then for each request: request_id, new record, units, live field   (at most 1,000)
-- Returns how many records were changed by this call, 0 when the SKU is not primed (nothing changed).
-- Stays true: a record only goes forward (see rank), so calls may be repeated, come late, or overtake each other; an
-- older stock version never overwrites a newer one; a buyer's live units are those of its live records (I7); one that
-- has left the line is in it no more, and counts as decided (I4); one that Redis had lost counts as admitted and decided.
local rank = {q = 0, w = 0, h = 1, e = 2, c = 2, s = 2, r = 2, p = 3, f = 4}
local live = {q = true, w = true, h = true, p = true}
local first, each = 9, 4
local count = (#ARGV - first + 1) / each
local version = redis.call('HGET', KEYS[1], 'version')
if not version then return 0 end -- priming reads it all from the database, and must not count it a second time
if tonumber(ARGV[8]) > tonumber(version) then
  redis.call('HSET', KEYS[1], 'available', ARGV[4], 'held', ARGV[5], 'sold', ARGV[6], 'returning', ARGV[7],
    'version', ARGV[8])
end

local changed = 0
for i = 1, count do
  local at = first + (i - 1) * each
  local id, record, units, field = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3]
  local known = redis.call('HGET', KEYS[2], id)
  local is, was = string.sub(record, 1, 1), known and string.sub(known, 1, 1)
  if not was or rank[is] > (rank[was] or 0) then
    changed = changed + 1
    redis.call('HSET', KEYS[2], id, record)
    local counted = was and live[was] or false
    if counted and not live[is] then
      if redis.call('HINCRBY', KEYS[3], field, 0 - units) <= 0 then redis.call('HDEL', KEYS[3], field) end
    elseif live[is] and not counted then
      redis.call('HINCRBY', KEYS[3], field, units)
    end
    if was == 'q' or was == 'w' then redis.call('HINCRBY', KEYS[1], 'stirs', 1) end
    local left = redis.call('ZREM', KEYS[4], id) == 1
    if left then
      local stock = redis.call('HMGET', KEYS[1], 'queued', 'waits_for', 'last_seq')
      redis.call('HSET', KEYS[1], 'queued', math.max(tonumber(stock[1] or '0') - units, 0))
      -- It may be the one the line waited for, so the line is looked at anew; who was told "waitlisted" still is.
      if stock[2] == 'waitlist' then redis.call('HSET', KEYS[1], 'waitlisted_to', stock[3] or '0') end
      redis.call('HDEL', KEYS[1], 'waits_for')
    end
    if not was then redis.call('HINCRBY', KEYS[1], 'admitted', 1) end
    -- One that was set aside undecided is decided now; nobody else will count it.
    local aside = not left and (was == 'q' or was == 'w') and not redis.call('ZSCORE', KEYS[6], id)
      and redis.call('ZSCORE', KEYS[7], id)
    if aside then redis.call('HINCRBY', KEYS[1], 'aside', -1) end
    if left or aside or not was then redis.call('HINCRBY', KEYS[1], 'decided', 1) end
    local ends = string.match(record, '^h|%d+|%d+|%d+|[^|]+|(%d+)$')
    if ends then redis.call('ZADD', KEYS[5], ends, id) else redis.call('ZREM', KEYS[5], id) end
  elseif was ~= 'h' then
    redis.call('ZREM', KEYS[5], id)
  elseif is == 'h' then
    local ends = string.match(known, '^h|%d+|%d+|%d+|[^|]+|(%d+)$')
    if ends then redis.call('ZADD', KEYS[5], ends, id) end
  end
end
redis.call('PUBLISH', ARGV[2], ARGV[1])
if redis.call('ZCARD', KEYS[4]) > 0 then redis.call('PUBLISH', ARGV[3], ARGV[1]) end
return changed
