-- Hand out the next batch of a queue to the holder of its lock: what is in flight first, only then what is due.
-- KEYS  1 lock   2 waiting   3 in flight   4 records   5 state   6 hand outs   7 dead letters   8 dead letter notes
-- ARGV  1 token   2 call number of this token   3 batch size (at most 1,000)   4 most hand-outs of one task
-- Returns -1 (an integer) when the token does not hold the lock and nothing changed; else a flat list:
--   kind ('fresh' or 'again'), the ids that became dead letters by this call (a text, spaces between), then id, payload
--   for each handed out. again: what a holder left in flight, the first time all together, from then on one at a time.
-- Stays true: an id waits or is in flight, never both, never neither, until settled or dead (Q1); a re-sent call gets
-- the batch it was given before; hand-outs are counted here, before the work (Q12). TIME of the server is the only
-- clock, and never seems to go back (Q13).
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
local call = ARGV[1] .. '#' .. ARGV[2]
local limit, most = tonumber(ARGV[3]), tonumber(ARGV[4])
local last = redis.call('HMGET', KEYS[5], 'hand_call', 'hand_kind', 'hand_count', 'hand_aside', 'last_us')
local time = redis.call('TIME')
local now = string.format('%.0f', math.max(time[1] * 1000000 + time[2], tonumber(last[5] or '0')))
local dead, taken = {}, 0

local function take_due()
  local found = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
  local ids, moved = {}, {}
  for i = 1, #found, 2 do
    ids[#ids + 1] = found[i]
    moved[i], moved[i + 1] = found[i + 1], found[i]
  end
  if #ids > 0 then
    redis.call('ZADD', KEYS[3], unpack(moved))
    redis.call('ZREM', KEYS[2], unpack(ids))
    taken = #ids
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
  for _, id in ipairs(left) do
    local outs
    if counted then outs = redis.call('HINCRBY', KEYS[6], id, 1)
    else outs = tonumber(redis.call('HGET', KEYS[6], id) or '0') end
    if outs < most then return 'again', {id} end
    redis.call('ZADD', KEYS[7], redis.call('ZSCORE', KEYS[3], id), id)
    redis.call('HSETNX', KEYS[8], id, outs .. '|' .. now)
    redis.call('ZREM', KEYS[3], id)
    redis.call('HDEL', KEYS[6], id)
    dead[#dead + 1] = id
  end
  if redis.call('ZCARD', KEYS[3]) > 0 then return 'again', {} end
  return take_due()
end

local left = redis.call('ZRANGE', KEYS[3], 0, limit - 1)
local kind, ids, gone
if last[1] == call then
  kind, ids, gone = last[2], {unpack(left, 1, tonumber(last[3]))}, last[4] or ''
else
  if #left > 0 then kind, ids = take_again(left, last[2] ~= 'given back')
  else kind, ids = take_due() end
  gone = table.concat(dead, ' ')
  redis.call('HSET', KEYS[5], 'hand_call', call, 'hand_kind', kind, 'hand_count', #ids, 'hand_aside', gone)
  if taken > 0 then redis.call('HINCRBY', KEYS[5], 'taken', taken) end
  if #dead > 0 then redis.call('HINCRBY', KEYS[5], 'dead', #dead) end
end
local answer = {kind, gone}
local records = #ids > 0 and redis.call('HMGET', KEYS[4], unpack(ids)) or {}
for i, id in ipairs(ids) do answer[#answer + 1], answer[#answer + 2] = id, records[i] or '' end
return answer
