-- Tell an empty Redis what became of requests, before its stock is primed.
-- KEYS  1 stock   2 records   3 holds
-- ARGV  for each request: request_id, record   (at most 1,000)
-- Returns 1 written, 0 the stock is primed already and its own records stand (nothing changed).
-- Stays true: a record that admission or settlement wrote is never overwritten by an older one (I14, I19).
if redis.call('HEXISTS', KEYS[1], 'version') == 1 then return 0 end
redis.call('HSET', KEYS[2], unpack(ARGV))
for i = 1, #ARGV, 2 do
  local ends = string.match(ARGV[i + 1], '^h|%d+|%d+|%d+|[^|]+|(%d+)$')
  if ends then redis.call('ZADD', KEYS[3], ends, ARGV[i]) end
end
return 1
