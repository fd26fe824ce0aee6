-- Forget a SKU that no sale needs any more: unlink every key of it, its lock with them.
-- KEYS  1 lock   2 line   3 in flight   4 set aside   5 sales   6 and on: every other key of the SKU
-- ARGV  1 token   then the ids of the sales that may be forgotten
-- Returns 1 forgotten, 0 somebody waits in line, in flight or set aside, or a sale was made meanwhile (nothing changed),
-- -1 the token does not hold the lock (nothing changed).
-- Stays true: nothing admitted and undecided is forgotten (I4); of what is decided the database knows more than Redis.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
if redis.call('ZCARD', KEYS[2]) + redis.call('ZCARD', KEYS[3]) + redis.call('ZCARD', KEYS[4]) > 0 then return 0 end
local known = {}
for i = 2, #ARGV do known[ARGV[i]] = true end
for _, field in ipairs(redis.call('HKEYS', KEYS[5])) do
  if not known[string.match(field, '^%d+')] then return 0 end
end
for i = 1, #KEYS do redis.call('UNLINK', KEYS[i]) end
return 1
