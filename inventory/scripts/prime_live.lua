-- Tell an empty Redis which units buyers have already, before its stock is primed.
-- KEYS  1 stock   2 live units
-- ARGV  for each buyer: live field ("sale_id:buyer"), units   (at most 1,000)
-- Returns 1 written, 0 the stock is primed already and its own figures stand (nothing changed).
-- Stays true: counts that admissions have moved are never overwritten by older ones (I7).
if redis.call('HEXISTS', KEYS[1], 'version') == 1 then return 0 end
redis.call('HSET', KEYS[2], unpack(ARGV))
return 1
