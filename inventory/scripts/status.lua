-- Read where some requests of one SKU stand.
-- KEYS  1 line   2 in flight   3 records
-- ARGV  request_ids   (at most 1,000)
-- Returns a flat list, two entries a request: its record ('' when unknown), its position (0 when it does not wait).
-- Stays true: reads only.
local answer = {}
local records = redis.call('HMGET', KEYS[3], unpack(ARGV))
local in_flight = redis.call('ZCARD', KEYS[2])
for i, id in ipairs(ARGV) do
  local position = 0
  if records[i] and (string.sub(records[i], 1, 1) == 'q' or string.sub(records[i], 1, 1) == 'w') then
    local rank = redis.call('ZRANK', KEYS[1], id)
    if rank then position = in_flight + rank + 1
    else position = (redis.call('ZRANK', KEYS[2], id) or -1) + 1 end
  end
  answer[i * 2 - 1], answer[i * 2] = records[i] or '', position
end
return answer
