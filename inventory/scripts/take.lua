-- Hand out the next batch of a SKU to the holder of its lock: what is in flight first, only then the line.
-- KEYS  1 lock   2 line   3 in flight   4 records   5 stock   6 hand outs   7 dead letters
-- ARGV  1 token   2 call number of this token   3 batch size   4 most hand-outs of one request
-- Returns -1 (an integer) when the token does not hold the lock and nothing changed; else a flat list:
--   kind ('fresh', 'again' or 'dead'), then request_id, record for each.
--   fresh: from the line; again: ONE request that a crashed holder left in flight; dead: one that was handed out too
--   often and now lies in the dead letters as well: its order must be refused.
-- Stays true: a request is in the line or in flight, never both, never neither, until settled (I4, I17, Q1); a
-- re-sent call gets the batch it was given before; hand-outs are counted here, before the work (Q12).
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

local last = redis.call('HMGET', KEYS[5], 'hand_call', 'hand_kind')
if last[1] == call then
  local most = limit
  if last[2] ~= 'fresh' then most = 1 end
  return with_records(last[2], redis.call('ZRANGE', KEYS[3], 0, most - 1))
end

local kind, ids = 'fresh', redis.call('ZRANGE', KEYS[3], 0, 0)
if #ids > 0 then
  kind = 'again'
  local again = redis.call('HINCRBY', KEYS[6], ids[1], 1)
  if again >= tonumber(ARGV[4]) then
    kind = 'dead'
    redis.call('ZADD', KEYS[7], redis.call('ZSCORE', KEYS[3], ids[1]), ids[1])
  end
else
  local taken = redis.call('ZRANGE', KEYS[2], 0, limit - 1, 'WITHSCORES')
  local moved = {}
  for i = 1, #taken, 2 do
    ids[#ids + 1] = taken[i]
    moved[i], moved[i + 1] = taken[i + 1], taken[i]
  end
  if #ids > 0 then
    redis.call('ZADD', KEYS[3], unpack(moved))
    redis.call('ZREM', KEYS[2], unpack(ids))
  end
end
redis.call('HSET', KEYS[5], 'hand_call', call, 'hand_kind', kind)
return with_records(kind, ids)
