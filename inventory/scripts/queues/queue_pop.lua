-- Take the earliest tasks that are due out of a queue, for good, or only look at them.
-- KEYS  1 waiting   2 records   3 state   4 reply of this call (not of a look)
-- ARGV  1 how many   (at most 1,000)   2 how long the reply is kept, in ms; '0' = only look
-- Returns a flat list, three texts a task: id, when it was due in µs, payload.
-- Stays true: a look changes nothing; a call re-sent while its reply is kept gets that reply and removes nothing (L1);
-- TIME of the server is the only clock.
local look = ARGV[2] == '0'
local given = not look and redis.call('GET', KEYS[4])
if given then return cjson.decode(given) end
local time = redis.call('TIME')
local now_us = math.max(time[1] * 1000000 + time[2], tonumber(redis.call('HGET', KEYS[3], 'last_us') or '0'))
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now_us), 'WITHSCORES', 'LIMIT', 0,
  ARGV[1])
if #found == 0 then return {} end
local answer, ids = {}, {}
for i = 1, #found / 2 do
  ids[i] = found[i * 2 - 1]
  answer[i * 3 - 2], answer[i * 3 - 1] = ids[i], found[i * 2]
  answer[i * 3] = redis.call('HGET', KEYS[2], ids[i]) or ''
end
if look then return answer end
redis.call('ZREM', KEYS[1], unpack(ids))
redis.call('HDEL', KEYS[2], unpack(ids))
redis.call('HINCRBY', KEYS[3], 'popped', #ids)
redis.call('SET', KEYS[4], cjson.encode(answer), 'PX', ARGV[2])
return answer
