#!lua flags=allow-oom
-- Note a worker's sign of life, forget those that fell silent long ago, and tell what all of them said.
-- KEYS  1 workers
-- ARGV  1 who ('': nobody speaks, only listen)   2 what it says of itself: a JSON object
--       3 seconds until a silent one is forgotten   4 ttl_ms
-- Returns a flat list: the server's time in seconds as text, then who and what it said, for each.
-- Stays true: each worker writes its own field only; the time is the server's. Safe to send twice.
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
if ARGV[1] ~= '' then
  local said = cjson.decode(ARGV[2])
  said.last = now
  redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(said))
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
local noted = redis.call('HGETALL', KEYS[1])
local told = {string.format('%.6f', now)}
for i = 1, #noted, 2 do
  local sound, said = pcall(cjson.decode, noted[i + 1])
  if sound and now - (tonumber(said.last) or 0) <= tonumber(ARGV[3]) then
    told[#told + 1] = noted[i]
    told[#told + 1] = noted[i + 1]
  elseif ARGV[1] ~= '' then
    redis.call('HDEL', KEYS[1], noted[i])
  end
end
return told
