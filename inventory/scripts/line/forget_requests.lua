-- Forget decided requests of retired sales, while another sale of the SKU lives on.
-- KEYS  1 records   2 live units   3 ended requests   4 dead letters   5 dead letter notes
-- ARGV  request_ids   (at most 1,000)
-- Returns how many were forgotten by this call.
-- Stays true: a request that waits keeps its record and its place (I4).
local known = redis.call('HMGET', KEYS[1], unpack(ARGV))
local gone, fields = {}, {}
for i, id in ipairs(ARGV) do
  local letter, sale, buyer = string.match(known[i] or '', '^(%a)|%d+|%d+|(%d+)|([^|]+)')
  if letter and not string.find('qwb', letter, 1, true) then
    gone[#gone + 1] = id
    fields[#fields + 1] = sale .. ':' .. buyer
  end
end
if #gone == 0 then return 0 end
redis.call('HDEL', KEYS[1], unpack(gone))
redis.call('HDEL', KEYS[2], unpack(fields))
redis.call('HDEL', KEYS[3], unpack(fields))
redis.call('ZREM', KEYS[4], unpack(gone))
redis.call('HDEL', KEYS[5], unpack(gone))
return #gone
