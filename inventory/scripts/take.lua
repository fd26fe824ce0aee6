-- Hand out the next batch of a SKU to the holder of its lock: what is in flight first, only then the line.
-- KEYS  1 lock   2 line   3 in flight   4 records   5 stock   6 hand outs   7 dead letters
-- ARGV  1 token   2 call number of this token   3 batch size   4 most hand-outs of one request
-- Returns -1 (an integer) when the token does not hold the lock and nothing changed; else a flat list:
--   kind ('fresh', 'again' or 'dead'), then request_id, record for each.
--   fresh: from the line. again: what a holder left in flight, the first time all together, from then on one request
--   at a time, so that one that cannot be settled is found. dead: ONE that was handed out too often; it now lies in
--   the dead letters as well, and its order must be refused.
-- Stays true: a request is in the line or in flight, never both, never neither, until settled (I4, I17, Q1); a
-- re-sent call gets the batch it was given before; hand-outs are counted here, before the work (Q12), but not after
-- a holder that gave its batch back in order.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
local call = ARGV[1] .. '#' .. ARGV[2]
local limit = tonumber(ARGV[3])

local function with_records(kind, ids)
  local answer = {kind}
  if #ids == 0 then return answer end
  local records = redis.call('HMGET', KEYS[4], unpack(ids))
  for i, id in ipairs(ids) do
    answer[#answer + 1], answer[#answer + 2] = id, records[i] or ''
  end
  return answer
end

local function take_from_line()
  local taken = redis.call('ZRANGE', KEYS[2], 0, limit - 1, 'WITHSCORES')
  local ids, moved = {}, {}
  for i = 1, #taken, 2 do
    ids[#ids + 1] = taken[i]
    moved[i], moved[i + 1] = taken[i + 1], taken[i]
  end
  if #ids > 0 then
    redis.call('ZADD', KEYS[3], unpack(moved))
    redis.call('ZREM', KEYS[2], unpack(ids))
  else
    redis.call('HSET', KEYS[5], 'queued', 0) -- nobody waits: whatever the counter drifted to ends here
  end
  return 'fresh', ids
end

local function take_again(left, counted)
  if redis.call('EXISTS', KEYS[6]) == 0 then
    if counted then
      for _, id in ipairs(left) do redis.call('HSET', KEYS[6], id, 1) end
    end
    return 'again', left
  end
  local id, outs = left[1], 0
  if counted then outs = redis.call('HINCRBY', KEYS[6], left[1], 1) end
  if outs < tonumber(ARGV[4]) then return 'again', {id} end
  redis.call('ZADD', KEYS[7], redis.call('ZSCORE', KEYS[3], id), id)
  return 'dead', {id}
end

local last = redis.call('HMGET', KEYS[5], 'hand_call', 'hand_kind', 'hand_count')
local left = redis.call('ZRANGE', KEYS[3], 0, limit - 1)
if last[1] == call then
  return with_records(last[2], {unpack(left, 1, tonumber(last[3]))})
end
local kind, ids
if #left > 0 then kind, ids = take_again(left, last[2] ~= 'given back')
else kind, ids = take_from_line() end
redis.call('HSET', KEYS[5], 'hand_call', call, 'hand_kind', kind, 'hand_count', #ids)
return with_records(kind, ids)
