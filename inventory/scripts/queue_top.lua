-- Look at the earliest tasks that are due.
-- KEYS  1 waiting   2 records   3 state
-- ARGV  1 how many   (at most 1,000)
-- Returns a flat list, three texts a task: id, when it is due in µs, payload.
-- Stays true: reads only; TIME of the server is the only clock.
local time = redis.call('TIME')
local now_us = math.max(time[1] * 1000000 + time[2], tonumber(redis.call('HGET', KEYS[3], 'last_us') or '0'))
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now_us), 'WITHSCORES', 'LIMIT', 0,
  ARGV[1])
local answer, count = {}, #found / 2
for i = 1, count do
  answer[i * 3 - 2], answer[i * 3 - 1] = found[i * 2 - 1], found[i * 2]
  answer[i * 3] = redis.call('HGET', KEYS[2], found[i * 2 - 1]) or ''
end
return answer
