#!lua flags=allow-oom
-- Take the lock of one name, find that this token has it already, or be noted as waiting for it.
-- KEYS  1 lock   2 fence   3 signals   4 waiters
-- ARGV  1 token   2 ttl_ms   3 fence_ttl_ms   4 wait_ms: for how long the caller waits now, 0 = not at all
--       5 nonce the caller was woken with, '' = none   6 grant_ttl_ms, or 0: take a free lock also before who waits
-- Returns {1, fence, how many wait} when the lock is ours, else {0, pttl_ms of the holder or the grant, how many wait}.
-- Stays true: one holder; TTL set in the same step (L2); the same token asked twice gets the same fence, so a lost
-- reply cannot lock its caller out (L1); a fence is above every earlier one, also when the key was lost (L20); a lock
-- that was granted goes to the one that holds the nonce, or to anyone when the nonce lies there and nobody waits (L13);
-- a lock that ended by itself while others wait is granted to the one that waits longest, who may be the caller, and
-- who asks once without waiting does not come before them;
-- a waiter's note is in memory only, for it ends with its connection: to wait costs the disk and the replicas nothing.
local function note_waiter(now_ms)
  redis.set_repl(redis.REPL_NONE)
  redis.call('ZADD', KEYS[4], now_ms + ARGV[4], ARGV[1])
  redis.call('PEXPIRE', KEYS[4], ARGV[4] * 2)
  redis.set_repl(redis.REPL_ALL)
end
local holder = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'GET', 'PX', ARGV[2])
local waits, time = ARGV[4] ~= '0', nil
if holder == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  local fence = redis.call('GET', KEYS[2])
  if fence then
    redis.call('ZREM', KEYS[4], ARGV[1])
    return {1, fence, redis.call('ZCARD', KEYS[4])}
  end
elseif holder then
  time = redis.call('TIME')
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  local ours, granted = false, string.sub(holder, 1, 2) == 'g:' and string.sub(holder, 3)
  if granted and granted == ARGV[5] then ours = true
  elseif granted and redis.call('LINDEX', KEYS[3], 0) == granted then
    ours = redis.call('ZCOUNT', KEYS[4], now_ms, '+inf') == 0
  end
  local left = redis.call('PTTL', KEYS[1])
  -- A lock without a TTL is an orphan of other software: it is taken over in this same step (S2).
  if not ours and left >= 0 then
    if waits then note_waiter(now_ms) end
    return {0, left, redis.call('ZCARD', KEYS[4])}
  end
  if granted then redis.call('DEL', KEYS[3]) end
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
time = time or redis.call('TIME')
if not holder and ARGV[5] == '' and (ARGV[6] or '0') ~= '0' and redis.call('EXISTS', KEYS[4]) == 1 then
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  if waits then note_waiter(now_ms) end
  local own = tonumber(redis.call('ZSCORE', KEYS[4], ARGV[1]) or 0) >= now_ms and 1 or 0
  if redis.call('ZCOUNT', KEYS[4], now_ms, '+inf') > own then
    local nonce = redis.sha1hex(ARGV[1] .. time[1] .. time[2])
    redis.call('DEL', KEYS[3])
    redis.call('RPUSH', KEYS[3], nonce)
    redis.call('PEXPIRE', KEYS[3], ARGV[6])
    redis.call('SET', KEYS[1], 'g:' .. nonce, 'PX', ARGV[6])
    return {0, tonumber(ARGV[6]), redis.call('ZCARD', KEYS[4])}
  end
end
-- Microseconds as text: to print the number costs as much as a SET.
local text = time[1] .. string.sub('00000' .. time[2], -6)
local last = redis.call('SET', KEYS[2], text, 'GET', 'PX', ARGV[3])
if last and tonumber(last) >= tonumber(text) then
  text = string.format('%.0f', last + 1)
  redis.call('SET', KEYS[2], text, 'PX', ARGV[3])
end
if waits or ARGV[5] ~= '' then redis.call('ZREM', KEYS[4], ARGV[1]) end
return {1, text, redis.call('ZCARD', KEYS[4])}
