-- Admit a batch of requests of one sale into the SKU's line, in the order given.
-- KEYS  1 sale   2 stock   3 line   4 in flight   5 records   6 live units
-- ARGV  1 sale_id   2 sku   3 wake channel   4 the requests: "request_id buyer quantity", a line each   (at most 1,000)
-- Returns a flat list, three integers a request: code, seq, position (0 where there is none).
--   code  1 admitted now    2 sold out          3 over the buyer's limit    4 not open yet   5 paused   6 closed
--         7 not primed      8 same id, other quantity
--         100 + byte of the state's letter, told as status.lua tells it (w: it waits for a held unit): admitted before,
--         nothing changed
-- Stays true: an id is admitted once, so a re-sent call repeats its answers (L1, I14); seq strictly rises in the SKU
-- and every admitted id is in the line and in the records, or in neither (I5, I8); a buyer's live units never pass the
-- limit (I7); units in line never pass what may still be had plus the room (I15). TIME of the server is the only clock.
local answer = {}
local count, ids, buyers, quantities, live_fields = 0, {}, {}, {}, {}
for id, buyer, quantity in string.gmatch(ARGV[4], '(%S+) (%S+) (%d+)') do
  count = count + 1
  ids[count], buyers[count], quantities[count] = id, buyer, quantity
  live_fields[count] = ARGV[1] .. ':' .. buyer
end
local known = redis.call('HMGET', KEYS[5], unpack(ids))
local lives = redis.call('HMGET', KEYS[6], unpack(live_fields))
local sale = redis.call('HMGET', KEYS[1], 'switch', 'opens_us', 'closes_us', 'limit', 'room')
local stock = redis.call('HMGET', KEYS[2], 'available', 'returning', 'queued', 'last_seq', 'admitted', 'waits_for',
  'waitlisted_to')

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local shut = nil
if not sale[1] or not stock[1] then shut = 7
elseif sale[1] == 'closed' or now_us >= tonumber(sale[3]) then shut = 6
elseif now_us < tonumber(sale[2]) then shut = 4
elseif sale[1] == 'paused' then shut = 5 end

local waiting = redis.call('ZCARD', KEYS[3])
local ahead = waiting + redis.call('ZCARD', KEYS[4])
local limit = tonumber(sale[4] or '0')
local queued = tonumber(stock[3] or '0')
if ahead == 0 then queued = 0 end -- nobody waits: whatever the counter drifted to ends here
local may_be_had = tonumber(stock[1] or '0') + tonumber(stock[2] or '0')
local room = 0
if may_be_had > 0 then room = may_be_had + tonumber(sale[5] or '0') - queued end
local last_seq = tonumber(stock[4] or '0')

local seen, live_now = {}, {}
local to_line, to_records, to_live = {}, {}, {}
local admitted = 0
local function answer_with(code, seq, position)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = code, seq, position
end

for i = 1, count do
  local id, quantity = ids[i], quantities[i]
  local record = seen[id] or known[i]
  if record then
    local letter, seq, had = string.match(record, '^(%a)|(%d+)|(%d+)|')
    if had ~= quantity then
      answer_with(8, 0, 0)
    else
      local rank = redis.call('ZRANK', KEYS[3], id)
      local position = 0
      if rank then position = redis.call('ZCARD', KEYS[4]) + rank + 1
      elseif letter == 'q' and seen[id] then position = live_now[id]
      elseif letter == 'q' then position = (redis.call('ZRANK', KEYS[4], id) or -1) + 1 end
      if letter == 'q' and (stock[6] == 'waitlist' or tonumber(seq) <= tonumber(stock[7] or '0')) then letter = 'w' end
      answer_with(100 + string.byte(letter), tonumber(seq), position)
    end
  elseif shut then
    answer_with(shut, 0, 0)
  else
    local field, units = live_fields[i], tonumber(quantity)
    local live = (to_live[field] or tonumber(lives[i] or '0')) + units
    if live > limit then
      answer_with(3, 0, 0)
    elseif units > room then
      answer_with(2, 0, 0)
    else
      admitted = admitted + 1
      last_seq = math.max(last_seq + 1, now_us)
      local seq = string.format('%.0f', last_seq)
      seen[id] = 'q|' .. seq .. '|' .. quantity .. '|' .. ARGV[1] .. '|' .. buyers[i]
      live_now[id] = ahead + admitted
      to_live[field] = live
      to_line[admitted * 2 - 1], to_line[admitted * 2] = seq, id
      to_records[admitted * 2 - 1], to_records[admitted * 2] = id, seen[id]
      room, queued = room - units, queued + units
      answer_with(1, last_seq, ahead + admitted)
    end
  end
end

if admitted > 0 then
  local flat_live = {}
  for field, units in pairs(to_live) do
    flat_live[#flat_live + 1] = field
    flat_live[#flat_live + 1] = units
  end
  redis.call('ZADD', KEYS[3], unpack(to_line))
  redis.call('HSET', KEYS[5], unpack(to_records))
  redis.call('HSET', KEYS[6], unpack(flat_live))
  redis.call('HSET', KEYS[2], 'queued', queued, 'last_seq', string.format('%.0f', last_seq),
    'admitted', tonumber(stock[5] or '0') + admitted)
  if waiting == 0 then redis.call('PUBLISH', ARGV[3], ARGV[2]) end
end
return answer
