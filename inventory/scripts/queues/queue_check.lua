-- Look at a queue's sizes and counters in one moment, and tell where some ids lie.
-- KEYS  1 waiting   2 in flight   3 dead letters   4 records   5 state
-- ARGV  the ids to look for   (at most 1,000)
-- Returns {waiting, in_flight, dead, records, the state as a flat list, then for each id: a text of its places (w waiting,
-- f in flight, d dead), its score there ('' for none), its record (false for none)}.
-- Stays true: reads only.
local answer = {redis.call('ZCARD', KEYS[1]), redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3]),
  redis.call('HLEN', KEYS[4]), redis.call('HGETALL', KEYS[5])}
for _, id in ipairs(ARGV) do
  local places, score = '', ''
  local waits, flies = redis.call('ZSCORE', KEYS[1], id), redis.call('ZSCORE', KEYS[2], id)
  local dead = redis.call('ZSCORE', KEYS[3], id)
  if waits then places, score = 'w', waits end
  if flies then places, score = places .. 'f', flies end
  if dead then places, score = places .. 'd', dead end
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = places, score, redis.call('HGET', KEYS[4], id)
end
return answer
