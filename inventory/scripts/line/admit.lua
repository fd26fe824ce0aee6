-- Admit a batch of requests of one sale into the SKU's line, in the order given.
-- KEYS  1 sales   2 stock   3 line   4 in flight   5 records   6 live units   7 ended requests
--       8 networks   9 passes
-- ARGV  1 sale_id   2 sku   3 wake channel   4 most requests of a buyer that may end unsold   5 reopening delay in µs
--       6 most requests on standby   7 for how many units of the sale one network is let in, 0: for any number
--       8 the requests (at most 1,000) as JSON: a list of request ids, of buyers, of quantities, of terms versions, all
--         of them texts; terms version "0": none was named; a list of the places in these lists, from 1, of those
--         that take standby where the line has no room; a list of networks, "": it is not known, "!": it is revoked;
--         a list of passes, "": none is asked for, "-": one is, and none that is good came, "!": a code is, and none
--         came, "@": a verified e-mail is, and none came; empty when no request needs one; a list of entries, each
--         stands for an e-mail that lets in one request of the sale, "": none does; empty when no request has one; a
--         list of what a request lacks as long as the sale is not everybody's, "!" a code, "@" a listed e-mail, "":
--         nothing; empty when no request lacks any   9 from when the sale is everybody's in µs, 0: at no moment
-- Returns a flat list, five integers a request: code, seq, position, terms version, ordinal (0 where there is none).
--   code  1 admitted now    2 sold out          3 over the buyer's limit    4 not open yet   5 paused   6 closed
--         7 not primed, or not since this server was started: it may have lost the last ordinals it gave
--         8 same id, other quantity            9 the terms became worse since that version
--         10 a terms version that is not known here     11 too many requests of the buyer ended unsold
--         12 no room now, but units may still come free; or standby was asked for, and is full   13 on standby now
--         14 its network was let in for as many units as one may be   15 it needs a pass   16 its pass let another one in
--         17 it needs a code   18 its network is revoked in this sale   19 it needs a verified e-mail
--         20 its entry let another one in
--         100 + byte of the state's letter, told as status.lua tells it (w: it waits for a held unit): admitted before,
--         nothing changed
-- Stays true: an id is admitted once, so a re-sent call repeats its answers (L1, I14); seq strictly rises in the SKU,
-- the ordinal rises by one in the sale; every admitted id is in the line and in the records, or in neither (I5, I8); its
-- record names the terms of this moment (I23); a buyer's live units never pass the limit (I7); units in line never pass
-- what may still be had plus the line capacity (I15), but for those on standby; while anybody is on standby nobody else
-- is let in, so who is on standby never gets a later place; a line that an ask found or left full, or a settlement or a
-- priming without a unit, opens only when no process can still remember it as full (one that tickets or a lower capacity
-- filled, and that no ask found so, opens at once); a network is let in for no more than its limit, on standby too,
-- whatever became of the units; a pass, and an entry, lets in one id; before the sale is everybody's nobody is let in who
-- lacks a code or a listed e-mail. TIME of the server is the only clock.
-- Shared: head_waits
local answer = {}
-- C code, where a pattern takes 3 us a request
local ids, buyers, quantities, versions, standbys, networks, passes, entries, lacks = unpack(cjson.decode(ARGV[8]))
local count, fields, sale = #ids, {}, ARGV[1] .. ':'
for i = 1, count do fields[i] = sale .. buyers[i] end
local known = redis.call('HMGET', KEYS[5], unpack(ids))
local lives = redis.call('HMGET', KEYS[6], unpack(fields))
-- Until the first request of a line has ended unsold there is nothing to read.
local ended = redis.call('EXISTS', KEYS[7]) == 1 and redis.call('HMGET', KEYS[7], unpack(fields)) or {}
-- Of each network: its units before this call, and those of this call too.
local network_limit, units_before, network_units, to_networks = tonumber(ARGV[7]), {}, {}, {}
local network_fields = {}
if network_limit > 0 then
  for i = 1, count do network_fields[i] = sale .. networks[i] end
  units_before = redis.call('HMGET', KEYS[8], unpack(network_fields))
end
-- Of each pass: the id that it let in.
local spent, spent_now, to_passes = {}, {}, {}
if #passes > 0 then
  for i = 1, count do if #passes[i] > 1 then passes[i] = sale .. passes[i] end end
  spent = redis.call('HMGET', KEYS[9], unpack(passes))
end
-- Of each entry, kept with the passes: the id that it let in.
local entered, has_entries = {}, #entries > 0
if has_entries then
  for i = 1, count do if entries[i] ~= '' then entries[i] = sale .. entries[i] end end
  entered = redis.call('HMGET', KEYS[9], unpack(entries))
end
local found = redis.call('HMGET', KEYS[1], ARGV[1], ARGV[1] .. ':ordinals')
local state, opens_us, closes_us, limit_text, capacity_text, terms =
  string.match(found[1] or '', '^(%a+)|(%d+)|(%d+)|(%d+)|(%d+)|%d+|(%d+)|')
local ordinal, base, run_id = string.match(found[2] or '', '^(%d+)|(%d+)|(%x+)$')
ordinal = tonumber(ordinal or '0')
local stock = redis.call('HMGET', KEYS[2], 'available', 'held', 'queued', 'last_seq', 'waitlisted_to', 'reopens_us',
  'changes')

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local shut = nil
if not state or not stock[1] or run_id ~= string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') then shut = 7
elseif state == 'closed' or now_us >= tonumber(closes_us) then shut = 6
elseif now_us < tonumber(opens_us) then shut = 4
elseif state == 'paused' then shut = 5 end

-- Who comes before the sale is everybody's is looked at for what it lacks.
local public_us = tonumber(ARGV[9])
local is_early = #lacks > 0 and (public_us == 0 or now_us < public_us)

local waiting = redis.call('ZCARD', KEYS[3])
local in_flight = redis.call('ZCARD', KEYS[4])
local ahead = waiting + in_flight
local limit = tonumber(limit_text or '0')
local queued = tonumber(stock[3] or '0')
if ahead == 0 then queued = 0 end -- nobody waits: whatever the counter drifted to ends here
local available, held = tonumber(stock[1] or '0'), tonumber(stock[2] or '0')
local admissible = 0
if available + held > 0 then admissible = available + held + tonumber(capacity_text or '0') - queued end
local reopens = stock[6]
if admissible <= 0 then
  if reopens ~= '0' and not shut then reopens = '0'; redis.call('HSET', KEYS[2], 'reopens_us', reopens) end
elseif reopens then
  if reopens == '0' then
    reopens = string.format('%.0f', now_us + tonumber(ARGV[5]))
    redis.call('HSET', KEYS[2], 'reopens_us', reopens)
  end
  -- What lies further ahead than that was written by a clock that was ahead of this one.
  local left_us = tonumber(reopens) - now_us
  if left_us > 0 and left_us <= tonumber(ARGV[5]) then admissible = 0 end
end
local last_seq = tonumber(stock[4] or '0')
local takes_standby = {}
for _, i in ipairs(standbys) do takes_standby[i] = true end
local standing = redis.call('ZCOUNT', KEYS[3], STANDBY, '+inf') + redis.call('ZCOUNT', KEYS[4], STANDBY, '+inf')

local function terms_of(version)
  local field = ARGV[1] .. ':terms:' .. version
  local text, hold = unpack(redis.call('HMGET', KEYS[1], field, field .. ':hold'))
  local most, price, currency = string.match(text or '', '^(%d+)|([%d.]+)|(%u+)$')
  return tonumber(most or ''), tonumber(price or ''), currency, tonumber(hold or '')
end
-- Return 9 or 10 when who was shown `version` must be asked again, nil when the terms of now keep its promise.
local function worse_than(version, units)
  if tonumber(version) > tonumber(terms) then return 10 end
  local most, price, currency, hold = terms_of(version)
  local most_now, price_now, currency_now, hold_now = terms_of(terms)
  if not most or not most_now then return 10 end
  if currency ~= currency_now or price_now > price or (most_now < units and units <= most) then return 9 end
  -- A process from before this was compared tells no hold.
  if hold and hold_now and hold_now < hold then return 9 end
end

local seen, position_of = {}, {}
local to_line, to_records, to_live, live_units = {}, {}, {}, {}
local admitted, waitlist, rest_of_record = 0, nil, '|' .. (terms or '') .. '.'
local function answer_with(i, code, seq, position, version, number)
  local n = i * 5
  answer[n - 4], answer[n - 3], answer[n - 2], answer[n - 1], answer[n] = code, seq, position, version, number
end

for i = 1, count do
  local id, quantity, field = ids[i], quantities[i], fields[i]
  local units = tonumber(quantity)
  local record = seen[id] or known[i]
  if record then
    local letter, seq, had, rest = string.match(record, '^(%a)|(%d+)|(%d+)|%d+|[^|]*(.*)$')
    if had ~= quantity then
      answer_with(i, 8, 0, 0, 0, 0)
    else
      local rank = redis.call('ZRANK', KEYS[3], id)
      local position = 0
      local waits = letter == 'q' or letter == 'b'
      if rank then position = in_flight + rank + 1
      elseif waits and seen[id] then position = position_of[id]
      elseif waits then position = (redis.call('ZRANK', KEYS[4], id) or -1) + 1 end
      if letter == 'q' then
        if waitlist == nil then waitlist = head_waits(4, 3, 5, available, held) end
        if waitlist or tonumber(seq) <= tonumber(stock[5] or '0') then letter = 'w' end
      end
      local version, number = string.match(rest, '^|(%d+)%.(%d+)')
      answer_with(i, 100 + string.byte(letter), tonumber(seq), position, tonumber(version or '0'), tonumber(number or '0'))
    end
  else
    local live = (live_units[field] or tonumber(lives[i] or '0')) + units
    local code, on_standby, of_network = shut, false, nil
    if not code and versions[i] ~= '0' and versions[i] ~= terms then code = worse_than(versions[i], units) end
    if not code then
      if networks[i] == '!' then code = 18
      elseif live > limit then code = 3
      elseif tonumber(ended[i] or '0') >= tonumber(ARGV[4]) then code = 11
      elseif units > admissible or standing > 0 then
        if takes_standby[i] then on_standby = standing < tonumber(ARGV[6]) end
        if not on_standby then code = (takes_standby[i] or available + held > 0) and 12 or 2 end
      end
      local pass = passes[i] or ''
      if not code and pass ~= '' then
        local let_in = spent_now[pass] or spent[i]
        if pass == '-' then code = 15 elseif pass == '!' then code = 17 elseif pass == '@' then code = 19
        elseif let_in and let_in ~= id then code = 16 end
      end
      if is_early and not code and lacks[i] ~= '' then code = lacks[i] == '!' and 17 or 19 end
      if has_entries and not code and entries[i] ~= '' then
        local let_in = spent_now[entries[i]] or entered[i]
        if let_in and let_in ~= id then code = 20 end
      end
      if not code and units_before[i] ~= nil and networks[i] ~= '' then
        of_network = (network_units[networks[i]] or tonumber(units_before[i] or '0')) + units
        if of_network > network_limit then code = 14 end
      end
    end
    if code then
      answer_with(i, code, 0, 0, 0, 0)
    else
      admitted, ordinal = admitted + 1, ordinal + 1
      last_seq = math.max(last_seq + 1, now_us)
      local seq = string.format('%.0f', last_seq)
      record = (on_standby and 'b|' or 'q|') .. seq .. '|' .. quantity .. '|' .. ARGV[1] .. '|' .. buyers[i]
        .. rest_of_record .. string.format('%.0f', ordinal) .. (networks[i] == '' and '' or '.' .. networks[i])
      seen[id], position_of[id], live_units[field] = record, ahead + admitted, live
      local n = admitted * 2
      if on_standby then seq, standing = string.format('%.0f', last_seq + STANDBY), standing + 1 end
      to_line[n - 1], to_line[n] = seq, id
      to_records[n - 1], to_records[n] = id, record
      -- Of two asks of one buyer the later is written last. A text is cheaper to pass on than a number.
      to_live[n - 1], to_live[n] = field, live == units and quantity or live
      if of_network then
        local m = #to_networks
        network_units[networks[i]], to_networks[m + 1], to_networks[m + 2] = of_network, network_fields[i], of_network
      end
      if (passes[i] or '') ~= '' then
        local m = #to_passes
        spent_now[passes[i]], to_passes[m + 1], to_passes[m + 2] = id, passes[i], id
      end
      if has_entries and entries[i] ~= '' then
        local m = #to_passes
        spent_now[entries[i]], to_passes[m + 1], to_passes[m + 2] = id, entries[i], id
      end
      admissible, queued = admissible - units, queued + units
      answer_with(i, on_standby and 13 or 1, last_seq, ahead + admitted, tonumber(terms), ordinal)
    end
  end
end

if admitted > 0 then
  redis.call('ZADD', KEYS[3], unpack(to_line))
  redis.call('HSET', KEYS[5], unpack(to_records))
  redis.call('HSET', KEYS[6], unpack(to_live))
  if #to_networks > 0 then redis.call('HSET', KEYS[8], unpack(to_networks)) end
  if #to_passes > 0 then redis.call('HSET', KEYS[9], unpack(to_passes)) end
  redis.call('HSET', KEYS[1], ARGV[1] .. ':ordinals', string.format('%.0f', ordinal) .. '|' .. base .. '|' .. run_id)
  redis.call('HSET', KEYS[2], 'queued', queued, 'last_seq', string.format('%.0f', last_seq),
    'changes', string.format('%.0f', tonumber(stock[7] or '0') + 1))
  if admissible <= 0 then redis.call('HSET', KEYS[2], 'reopens_us', '0') end
  if waiting == 0 then redis.call('PUBLISH', ARGV[3], ARGV[2]) end
end
return answer
