#!lua flags=allow-oom
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
-- Shared: hand_out
local time = redis.call('TIME')
local last_us = tonumber(redis.call('HGET', KEYS[5], 'last_us') or '0')
local now_us = string.format('%.0f', math.max(time[1] * 1000000 + time[2], last_us))

local function take_due()
  local found = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now_us, 'WITHSCORES', 'LIMIT', 0, ARGV[3])
  local ids, moved = {}, {}
  for i = 1, #found, 2 do
    ids[#ids + 1] = found[i]
    moved[i], moved[i + 1] = found[i + 1], found[i]
  end
  if #ids > 0 then
    redis.call('ZADD', KEYS[3], unpack(moved))
    redis.call('ZREM', KEYS[2], unpack(ids))
    redis.call('HINCRBY', KEYS[5], 'taken', #ids)
  end
  return ids
end

local function bury(id)
  redis.call('ZREM', KEYS[3], id)
  redis.call('HDEL', KEYS[6], id)
  redis.call('HINCRBY', KEYS[5], 'dead', 1)
  return true
end

return hand_out(now_us, take_due, bury)
