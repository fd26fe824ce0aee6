#!lua flags=allow-oom
-- Put requests back into their line that are in no place at all, each at its own seq.
-- KEYS  1 line   2 in flight   3 dead letters   4 records   5 stock
-- ARGV  1 sku   2 wake channel   then request_ids   (at most 1,000)
-- Returns how many were put back.
-- Stays true: only one whose record says that it waits, and that is neither in line nor in flight nor a dead letter in
-- this very moment, is put back (I4, I17); it is marked as brought back, because later ones may have been decided (I8).
local back = 0
for i = 3, #ARGV do
  local id = ARGV[i]
  local waits, seq, rest = string.match(redis.call('HGET', KEYS[4], id) or '', '^(q|(%d+)|(%d+|%d+|[^|]+))')
  if waits and not redis.call('ZSCORE', KEYS[1], id) and not redis.call('ZSCORE', KEYS[2], id)
    and not redis.call('ZSCORE', KEYS[3], id) then
    redis.call('ZADD', KEYS[1], seq, id)
    redis.call('HSET', KEYS[4], id, 'q|' .. seq .. '|' .. rest .. '|r')
    back = back + 1
  end
end
if back > 0 then
  -- One of them may be before those who wait; who was told "waitlisted" still is.
  local stock = redis.call('HMGET', KEYS[5], 'waits_for', 'last_seq')
  if stock[1] == 'waitlist' then redis.call('HSET', KEYS[5], 'waitlisted_to', stock[2] or '0') end
  redis.call('HDEL', KEYS[5], 'waits_for')
  redis.call('HINCRBY', KEYS[5], 'stirs', 1)
  redis.call('PUBLISH', ARGV[2], ARGV[1])
end
return back
