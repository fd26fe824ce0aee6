-- Settle tasks: they were worked and leave the queue.
-- KEYS  1 lock   2 in flight   3 records   4 state   5 hand outs
-- ARGV  1 token   then the ids   (at most 1,000)
-- Returns -1 when the token does not hold the lock and nothing changed, else how many were settled by this call.
-- Stays true: only what is in flight is settled, so a re-sent call settles nothing twice (Q3).
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
if #ARGV == 1 then return 0 end
local ids = {unpack(ARGV, 2)}
local scores = redis.call('ZMSCORE', KEYS[2], unpack(ids))
local gone = {}
for i, id in ipairs(ids) do
  if scores[i] then gone[#gone + 1] = id end
end
if #gone == 0 then return 0 end
local settled = redis.call('ZREM', KEYS[2], unpack(gone))
redis.call('HDEL', KEYS[3], unpack(gone))
redis.call('HDEL', KEYS[5], unpack(gone))
redis.call('HINCRBY', KEYS[4], 'settled', settled)
return settled
