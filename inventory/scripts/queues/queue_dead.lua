-- Put one dead task back into its queue, or remove it for good.
-- KEYS  1 dead letters   2 dead letter notes   3 waiting   4 records   5 state
-- ARGV  1 'retry' or 'discard'   2 id
-- Returns 1 done, 0 no such dead letter and nothing changed.
-- Stays true: an id lies in one place only; a retried task is due when it was, with no hand-out counted. A call sent
-- twice finds 0, as if nothing had been done: it must be sent once.
local due = redis.call('ZSCORE', KEYS[1], ARGV[2])
if not due then return 0 end
redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('HDEL', KEYS[2], ARGV[2])
if ARGV[1] == 'retry' then
  redis.call('ZADD', KEYS[3], due, ARGV[2])
  redis.call('HINCRBY', KEYS[5], 'retried', 1)
else
  redis.call('HDEL', KEYS[4], ARGV[2])
  redis.call('HINCRBY', KEYS[5], 'discarded', 1)
end
return 1
