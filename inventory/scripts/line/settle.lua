#!lua flags=allow-oom
-- Write what a COMMIT decided or changed into the line: with a token the answers to a batch, without one anything else.
-- KEYS  1 lock   2 in flight   3 records   4 stock   5 hand outs   6 live units   7 line   8 set aside
--       9 ended requests   10 sales
-- ARGV  1 token ('' = no lock)   2 sku   3 settled channel   4 wake channel   5 available   6 held   7 sold
--       8 stock version   9 hand-outs of one whose refusal is due   10 call number of the take that is answered
--       11 the requests (at most 1,000) as JSON: a list of request ids, of their new records ('' when it stays in
--         line), and of the units of those that have one
-- Returns how many requests this call settled or changed; -1 when the token does not hold the lock and nothing changed;
--   0 when without a token the SKU is not primed (nothing changed).
-- Stays true: a record only goes forward (see rank), so calls may be repeated, come late, or overtake each other (I19);
-- an older stock version never overwrites a newer one; queued counts the units in line and in flight (I15); a buyer's
-- live units are those of its live records (I7), and its ended requests those that are ended now: one that is paid late
-- counts no more; who was told "waitlisted" stays so. With a token only what is in flight is settled, so a re-sent call
-- settles nothing twice; only the last take's batch is put back in line, each at its own seq (I8). Without one nothing
-- in flight is touched, nothing is put back, an empty Redis stays empty, and a request that was forgotten with its sale
-- is not written again.
-- Shared: head_waits
local rank = {q = 0, w = 0, b = 0, h = 1, e = 2, c = 2, s = 2, r = 2, p = 3, f = 4}
local live = {q = true, w = true, b = true, h = true, p = true}
local locked = ARGV[1] ~= ''
if locked and redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
local stock = redis.call('HMGET', KEYS[4], 'version', 'queued', 'hand_call', 'available', 'held', 'last_seq')
if not locked and not stock[1] then return 0 end -- priming reads it all from the database
-- Who stays may be handed out again at once; then only the number of the take tells the two batches apart.
local is_last_batch = stock[3] == ARGV[1] .. '#' .. ARGV[10]

if stock[1] and head_waits(2, 7, 3, tonumber(stock[4] or '0'), tonumber(stock[5] or '0')) then
  redis.call('HSET', KEYS[4], 'waitlisted_to', stock[6] or '0') -- they were told so; it must not be taken back
end
local version = tonumber(stock[1] or '-1')
if tonumber(ARGV[8]) > version or (locked and tonumber(ARGV[8]) == version) then
  redis.call('HSET', KEYS[4], 'available', ARGV[5], 'held', ARGV[6], 'sold', ARGV[7], 'version', ARGV[8])
  if tonumber(ARGV[5]) + tonumber(ARGV[6]) == 0 then redis.call('HSET', KEYS[4], 'reopens_us', '0') end
end

local done, queued = 0, tonumber(stock[2] or '0')
local gone, back, records, lives, more = {}, {}, {}, {}, {}

-- Only what a crash left behind was handed out a second time: nearly always nobody is counted.
local has_hand_outs = redis.call('EXISTS', KEYS[5]) == 1
local function forget_hand_outs(names)
  if has_hand_outs then redis.call('HDEL', KEYS[5], unpack(names)) end
end

local function owner_of(record)
  return string.match(record, '^%a|%d+|%d+|(%d+)|([^|]*)')
end

local function change(id, record, known, units)
  local is, was = string.sub(record, 1, 1), known and string.sub(known, 1, 1) or (locked and 'q' or '')
  if rank[is] <= (rank[was] or -1) then return end
  local n = #records
  records[n + 1], records[n + 2] = id, record
  local has_changed = live[was] ~= live[is]
  if has_changed or (was == '' and not live[is]) then
    local sale, buyer = owner_of(record)
    local field = sale .. ':' .. buyer
    if has_changed then
      if not more[field] then more[field], lives[#lives + 1] = 0, field end
      more[field] = more[field] + (live[is] and units or 0 - units)
    end
    if not live[is] then redis.call('HINCRBY', KEYS[9], field, 1)
    elseif rank[was] == 2 and redis.call('HINCRBY', KEYS[9], field, -1) < 1 then redis.call('HDEL', KEYS[9], field) end
  end
  if locked then return end
  done = done + 1
  if redis.call('ZREM', KEYS[7], id) == 1 then queued = queued - units end
  redis.call('ZREM', KEYS[8], id) -- decided now, if it was not before
end

-- The units stand in the records too: a pattern for each takes as long as all else that is done for one.
local ids, news, units = unpack(cjson.decode(ARGV[11]))
if #ids > 0 then
  local scores = redis.call('ZMSCORE', KEYS[2], unpack(ids))
  local known = redis.call('HMGET', KEYS[3], unpack(ids))
  for i, id in ipairs(ids) do
    local record = news[i]
    if record == '' then
      if scores[i] and is_last_batch then
        gone[#gone + 1] = id
        back[#back + 1], back[#back + 2] = scores[i], id
      end
    elseif scores[i] or not locked then
      if locked then
        gone[#gone + 1] = id
        done, queued = done + 1, queued - units[i]
        change(id, record, known[i], units[i])
      elseif known[i] or redis.call('HEXISTS', KEYS[10], (owner_of(record))) == 1 then
        change(id, record, known[i], units[i])
      end
    end
  end
end
if #records > 0 then redis.call('HSET', KEYS[3], unpack(records)) end
if #lives > 0 then
  local had, kept, ended = redis.call('HMGET', KEYS[6], unpack(lives)), {}, {}
  for i, field in ipairs(lives) do
    local units = tonumber(had[i] or '0') + more[field]
    if units > 0 then kept[#kept + 1], kept[#kept + 2] = field, units else ended[#ended + 1] = field end
  end
  if #kept > 0 then redis.call('HSET', KEYS[6], unpack(kept)) end
  if #ended > 0 then redis.call('HDEL', KEYS[6], unpack(ended)) end
end
if #gone > 0 then
  redis.call('ZREM', KEYS[2], unpack(gone))
  forget_hand_outs(gone)
end
if #back > 0 then
  -- What is still in flight comes after those who wait, so it waits as well; not one whose refusal is due.
  local rest, freed = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), {}
  for i = 1, #rest, 2 do
    if tonumber(redis.call('HGET', KEYS[5], rest[i]) or '0') < tonumber(ARGV[9]) then
      back[#back + 1], back[#back + 2] = rest[i + 1], rest[i]
      freed[#freed + 1] = rest[i]
    end
  end
  redis.call('ZADD', KEYS[7], unpack(back))
  if #freed > 0 then
    redis.call('ZREM', KEYS[2], unpack(freed))
    forget_hand_outs(freed)
  end
end
if done > 0 or #records > 0 then
  redis.call('HSET', KEYS[4], 'queued', math.max(queued, 0))
  redis.call('HINCRBY', KEYS[4], 'changes', 1)
end
redis.call('PUBLISH', ARGV[3], ARGV[2])
if not locked and redis.call('ZCARD', KEYS[7]) > 0 then redis.call('PUBLISH', ARGV[4], ARGV[2]) end
return done
