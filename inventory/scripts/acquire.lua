-- Take the lock of one name, or find that this token has it already.
-- KEYS  1 lock   2 fence
-- ARGV  1 token   2 ttl_ms   3 fence_ttl_ms
-- Returns {1, fence} when the lock is ours, {0, pttl_ms of the other holder} when it is not.
-- Stays true: one holder; TTL set in the same step (L2); the same token asked twice gets the same fence, so a lost
-- reply cannot lock its caller out (L1); a fence is above every earlier one, also when the key was lost (L20).
local holder = redis.call('GET', KEYS[1])
local fence = redis.call('GET', KEYS[2])
if holder == ARGV[1] and fence then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {1, fence}
end
if holder and holder ~= ARGV[1] then
  local left = redis.call('PTTL', KEYS[1])
  if left >= 0 then return {0, left} end
end
local time = redis.call('TIME')
local text = string.format('%.0f', math.max(tonumber(fence or '0') + 1, time[1] * 1000000 + time[2]))
redis.call('SET', KEYS[2], text, 'PX', ARGV[3])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1, text}
