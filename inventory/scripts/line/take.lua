#!lua flags=allow-oom
-- Hand out the next batch to the holder of a SKU's lock: what is in flight first, only then what can be decided now.
-- KEYS  1 lock   2 line   3 in flight   4 records   5 stock   6 hand outs   7 dead letters   8 dead letter notes
--       9 set aside   10 sales
-- ARGV  1 token ('' = only look)   2 call number of this token   3 batch size (at most 1,000)
--       4 most hand-outs of one request   5 hand-outs at which even its refusal is given up
--       6 '1': hand out the first in line even if the figures say that it must wait
-- Returns for an empty token 0 (nobody waits), 1 (there is something to hand out) or 2 (the line must wait); else -1
--   when the token does not hold the lock and nothing changed; else a flat list: kind ('fresh', 'again' or 'dead'), the
--   ids set aside by this call (a text, spaces between), then id, record for each handed out. A record begins with w,
--   not q, when its buyer was told "waitlisted", as status.lua tells it: it waited for a unit, not only for its turn.
--   fresh: the first of the line, as many as can be decided: one that fits, or can never fit, or whose sale is over.
--   One on standby that does not fit is passed over: it keeps its place, and keeps nobody waiting. One that is decided
--   already needs no unit, and keeps nobody waiting.
--   again: what a holder left in flight, the first time all together, from then on one at a time, so that one that
--   cannot be settled is found. dead: ONE that was handed out too often; it now lies in the dead letters as well, and
--   its order must be refused. Set aside: one whose refusal could not be written either; it waits for an operator.
-- Stays true: an id is in the line or in flight, never both, never neither, until settled or set aside (I4, I17, Q1);
-- who must wait for a held unit, in a paused sale, or after a loss until tickets had time to come, is not handed out, and
-- nobody after them (I8); a re-sent call
-- gets the batch it was given before; hand-outs are counted here, before the work (Q12), but not after a holder that
-- gave its batch back in order. TIME of the server is the only clock.
-- Shared: decides_from
-- Shared: hand_out
-- Shared: head_waits
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local decides = decides_from(5, now_us) <= now_us
local states = {}
local function state_of(sale)
  if not states[sale] then
    local state, closes_us = string.match(redis.call('HGET', KEYS[10], sale) or '', '^(%a+)|%d+|(%d+)|')
    if state and (state == 'closed' or now_us >= tonumber(closes_us)) then state = 'over' end
    states[sale] = state or 'unknown' -- the database knows it, and decides
  end
  return states[sale]
end

-- Return a function that tells who is on standby, one after the other: id, seq (math.huge: nobody is left).
local function standby()
  local page, at, offset = {}, 1, 0
  return function()
    if at > #page then
      page = redis.call('ZRANGEBYSCORE', KEYS[2], STANDBY, '+inf', 'WITHSCORES', 'LIMIT', offset, offset == 0 and 1 or 100)
      at, offset = 1, offset + #page / 2
    end
    at = at + 2
    return page[at - 2], page[at - 1] and tonumber(page[at - 1]) - STANDBY or math.huge
  end
end

-- Return up to `count` requests from the front of the line that can be decided now, with their scores.
local function decidable(count)
  local ids, scores, records = {}, {}, {}
  if not decides then return ids, scores, records end
  local figures = redis.call('HMGET', KEYS[5], 'available', 'held')
  local available, held = tonumber(figures[1] or '0'), tonumber(figures[2] or '0')

  -- Return 'taken', 'passed over' (on standby, and not enough is free) or 'waits', and all after it with it.
  local function look(id, score, record)
    local letter, quantity, sale = string.match(record, '^(%a)|%d+|(%d+)|(%d+)|')
    local state, units = sale and state_of(sale), tonumber(quantity or '0')
    -- Decided already, as when its buyer left while it was in flight: the database knows it, and it waits for no unit.
    if not string.find(letter or '', '[qwb]') then state, units = nil, 0 end
    if state == 'paused' then return 'waits' end
    if units <= available then available, held = available - units, held + units
    elseif state ~= 'over' and letter == 'b' then return 'passed over'
    elseif state ~= 'over' and units <= available + held then return 'waits' end
    ids[#ids + 1], scores[#scores + 1], records[#records + 1] = id, score, record
    return 'taken'
  end

  local next_standby = standby()
  local standby_id, standby_seq = next_standby()
  -- Look at those on standby who came before `seq`; return false when the line must wait. Where nothing is free, and the
  -- first is of a sale that goes on, so are all after it.
  local function look_at_standby(seq)
    while standby_seq < seq and #ids < count do
      local score = string.format('%.0f', standby_seq + STANDBY)
      local found = look(standby_id, score, redis.call('HGET', KEYS[4], standby_id) or '')
      if found == 'waits' then return false end
      if found == 'passed over' and available == 0 then standby_seq = math.huge
      else standby_id, standby_seq = next_standby() end
    end
    return true
  end

  local at, page = 0, math.min(count, available + 1) -- rarely more can be decided: each takes a unit
  while #ids < count do
    local found = redis.call('ZRANGE', KEYS[2], at, at + page - 1, 'WITHSCORES')
    if #found == 0 then break end
    local names = {}
    for i = 1, #found, 2 do names[#names + 1] = found[i] end
    local texts = redis.call('HMGET', KEYS[4], unpack(names))
    for i, id in ipairs(names) do
      -- They lie after all others. A request admitted after them comes after them all the same: after a loss only.
      local seq = tonumber(found[i * 2])
      if seq >= STANDBY then look_at_standby(math.huge) return ids, scores, records end
      if not look_at_standby(seq) or #ids == count then return ids, scores, records end
      if look(id, found[i * 2], texts[i] or '') == 'waits' then return ids, scores, records end
    end
    at, page = at + #names, count - #ids
  end
  return ids, scores, records
end

if ARGV[1] == '' then
  if redis.call('ZCARD', KEYS[3]) > 0 then return 1 end
  if redis.call('ZCARD', KEYS[2]) == 0 then return 0 end
  return #decidable(1) > 0 and 1 or 2
end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end

local function take_from_line()
  local ids, scores, records = decidable(tonumber(ARGV[3]))
  if #ids == 0 and ARGV[6] == '1' and decides then
    local found = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    if found[1] then ids, scores, records = {found[1]}, {found[2]}, {redis.call('HGET', KEYS[4], found[1]) or ''} end
  end
  if #ids > 0 then
    local moved = {}
    for i, id in ipairs(ids) do moved[i * 2 - 1], moved[i * 2] = scores[i], id end
    redis.call('ZADD', KEYS[3], unpack(moved))
    redis.call('ZREM', KEYS[2], unpack(ids))
  elseif redis.call('HEXISTS', KEYS[5], 'queued_unsure') == 1 and redis.call('ZCARD', KEYS[2]) == 0 then
    -- The units of a damaged record were unknown when it was set aside; now nothing waits and the count is known.
    redis.call('HSET', KEYS[5], 'queued', 0)
    redis.call('HDEL', KEYS[5], 'queued_unsure')
  end
  return ids, records
end

local function set_aside(id, outs)
  if outs < tonumber(ARGV[5]) then return false end
  redis.call('ZADD', KEYS[9], redis.call('ZSCORE', KEYS[3], id), id)
  redis.call('ZREM', KEYS[3], id)
  redis.call('HDEL', KEYS[6], id)
  redis.call('HINCRBY', KEYS[5], 'changes', 1)
  local units = string.match(redis.call('HGET', KEYS[4], id) or '', '^%a|%d+|(%d+)|')
  if units and tonumber(units) > 0 then
    local queued = tonumber(redis.call('HGET', KEYS[5], 'queued') or '0')
    redis.call('HSET', KEYS[5], 'queued', math.max(queued - tonumber(units), 0))
  else
    redis.call('HSET', KEYS[5], 'queued_unsure', 1)
  end
  return true
end

local waited_to = tonumber(redis.call('HGET', KEYS[5], 'waitlisted_to') or '0')
local answer = hand_out(string.format('%.0f', now_us), take_from_line, set_aside)
for i = 4, waited_to > 0 and #answer or 0, 2 do
  local seq = string.match(answer[i], '^q|(%d+)|')
  if seq and tonumber(seq) <= waited_to then answer[i] = 'w' .. string.sub(answer[i], 2) end
end
return answer
