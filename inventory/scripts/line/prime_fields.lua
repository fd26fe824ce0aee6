-- Fill a hash of an empty Redis from the database, before the SKU's stock is primed.
-- KEYS  1 stock   2 the hash: records, live units or ended requests
-- ARGV  for each entry: field, value; '0' for one that has come to nothing   (at most 1,000)
-- Returns 1 written, 0 the stock is primed already and its own entries stand (nothing changed).
-- Stays true: what admission or settlement wrote is never overwritten by something older (I7, I14, I19).
if redis.call('HEXISTS', KEYS[1], 'version') == 1 then return 0 end
redis.call('HSET', KEYS[2], unpack(ARGV))
for i = 1, #ARGV, 2 do
  if ARGV[i + 1] == '0' then redis.call('HDEL', KEYS[2], ARGV[i]) end
end
return 1
