-- Read who was admitted to a sale after a seq and is not decided yet: in line, on standby, in flight or set aside.
-- Changes nothing.
-- KEYS  1 line   2 in flight   3 set aside   4 records   5 sales
-- ARGV  1 sale_id   2 the seq, which is left out   3 at most so many of each (at most 1,000)
--       4 how far above its seq one on standby lies
-- Returns a flat list: the ordinals of the sale as its hash has them ('' when it was not primed); '1' when one of the
--   three may have more, of those on standby or of the others, else '0'; then of each request its id and its record (''
--   when there is none).
-- Stays true: one moment for all three, so nobody is missed who goes from one to another.
local ids, more = {}, '0'
local standby_from = string.format('%.0f', tonumber(ARGV[2]) + tonumber(ARGV[4]))
for n = 1, 3 do
  for _, range in ipairs({{ARGV[2], '(' .. ARGV[4]}, {standby_from, '+inf'}}) do
    local found = redis.call('ZRANGEBYSCORE', KEYS[n], '(' .. range[1], range[2], 'LIMIT', 0, ARGV[3])
    if #found >= tonumber(ARGV[3]) then more = '1' end
    for _, id in ipairs(found) do ids[#ids + 1] = id end
  end
end
local answer = {redis.call('HGET', KEYS[5], ARGV[1] .. ':ordinals') or '', more}
for first = 1, #ids, 1000 do
  local last = math.min(first + 999, #ids)
  local records = redis.call('HMGET', KEYS[4], unpack(ids, first, last))
  for i = first, last do answer[#answer + 1], answer[#answer + 2] = ids[i], records[i - first + 1] or '' end
end
return answer
