-- Read where some requests of one SKU stand.
-- KEYS  1 line   2 in flight   3 records   4 stock
-- ARGV  request_ids   (at most 1,000)
-- Returns a flat list, two entries a request: its record ('' when unknown), its position (0 when it does not wait).
--   A record begins with w, not q, when the first of the line waits for a held unit: its turn comes only after that;
--   with b when it is on standby, after all others, until a unit comes back that is enough for it.
-- Stays true: reads only; who was told "waitlisted" is not told "queued" after it.
-- Shared: head_waits
local answer = {}
local records = redis.call('HMGET', KEYS[3], unpack(ARGV))
local in_flight = redis.call('ZCARD', KEYS[2])
local stock = redis.call('HMGET', KEYS[4], 'available', 'held', 'waitlisted_to')
local available, held = tonumber(stock[1] or '0'), tonumber(stock[2] or '0')
local all_wait, waited_to = head_waits(2, 1, 3, available, held), tonumber(stock[3] or '0')
for i, id in ipairs(ARGV) do
  local position, record = 0, records[i] or ''
  local letter = string.sub(record, 1, 1)
  if letter == 'q' or letter == 'b' then
    local rank = redis.call('ZRANK', KEYS[1], id)
    if rank then position = in_flight + rank + 1
    else position = (redis.call('ZRANK', KEYS[2], id) or -1) + 1 end
    if letter == 'q' and (all_wait or tonumber(string.match(record, '^%a|(%d+)') or '0') <= waited_to) then
      record = 'w' .. string.sub(record, 2)
    end
  end
  answer[i * 2 - 1], answer[i * 2] = record, position
end
return answer
