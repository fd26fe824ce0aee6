-- Take one waiting task out of its queue, but only as it was when the caller looked.
-- KEYS  1 waiting   2 records   3 state
-- ARGV  1 id   2 when it was due in µs, as the caller knows it
-- Returns 1 removed, 0 it does not wait (any more), -1 it was queued again with another due time; nothing changed then.
-- Stays true: a task queued again is never removed by somebody who means the old one (S13). A call sent twice finds
-- 0, as if nothing had been done: it must be sent once.
local due = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not due then return 0 end
if tonumber(due) ~= tonumber(ARGV[2]) then return -1 end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HINCRBY', KEYS[3], 'dequeued', 1)
return 1
