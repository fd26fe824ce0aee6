-- Take the lock of one name, find that this token has it already, or be noted as waiting for it.
-- KEYS  1 lock   2 fence   3 signals   4 waiters
-- ARGV  1 token   2 ttl_ms   3 fence_ttl_ms   4 wait_ms: for how long the caller waits now, 0 = not at all
--       5 nonce the caller was woken with, '' = none
-- Returns {1, fence, how many wait} when the lock is ours, else {0, pttl_ms of the holder or the grant, how many wait}.
-- Stays true: one holder; TTL set in the same step (L2); the same token asked twice gets the same fence, so a lost
-- reply cannot lock its caller out (L1); a fence is above every earlier one, also when the key was lost (L20); a lock
-- that was granted goes to whoever holds the nonce, or to anyone when the nonce lies there and nobody waits (L13).
local function waiting() return redis.call('ZCARD', KEYS[4]) end
local holder = redis.call('GET', KEYS[1])
local fence = redis.call('GET', KEYS[2])
local waits = tonumber(ARGV[4]) > 0
if holder == ARGV[1] and fence then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  redis.call('ZREM', KEYS[4], ARGV[1])
  return {1, fence, waiting()}
end
local time = redis.call('TIME')
if holder and holder ~= ARGV[1] then
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  local ours, granted = false, string.sub(holder, 1, 2) == 'g:' and string.sub(holder, 3)
  if granted and granted == ARGV[5] then ours = true
  elseif granted and redis.call('LINDEX', KEYS[3], 0) == granted then
    ours = redis.call('ZCOUNT', KEYS[4], now_ms, '+inf') == 0
  end
  local left = redis.call('PTTL', KEYS[1])
  -- A lock without a TTL is an orphan of other software: it is taken over in this same step (S2).
  if not ours and left >= 0 then
    if waits then
      redis.call('ZADD', KEYS[4], now_ms + ARGV[4], ARGV[1])
      redis.call('PEXPIRE', KEYS[4], ARGV[4] * 2)
    end
    return {0, left, waiting()}
  end
  if granted then redis.call('DEL', KEYS[3]) end
end
local text = string.format('%.0f', math.max(tonumber(fence or '0') + 1, time[1] * 1000000 + time[2]))
redis.call('SET', KEYS[2], text, 'PX', ARGV[3])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if waits or ARGV[5] ~= '' then redis.call('ZREM', KEYS[4], ARGV[1]) end
return {1, text, waiting()}
