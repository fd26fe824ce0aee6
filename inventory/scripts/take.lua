#!lua flags=allow-oom
-- Hand out the next batch to the holder of a lock: what is in flight first, only then what waits.
-- KEYS  1 lock   2 line   3 in flight   4 records   5 stock   6 hand outs   7 dead letters   8 dead letter notes
--       (of a queue: its own keys in their place, its state for the stock)
-- ARGV  1 token   2 call number of this token   3 batch size (at most 1,000)   4 most hand-outs of one request
--       5 hand-outs at which even its refusal is given up   6 'line' or 'tasks'
-- Returns -1 (an integer) when the token does not hold the lock and nothing changed; else a flat list:
--   kind ('fresh', 'again' or 'dead'), the ids set aside by this call (a text, spaces between), then id, record for
--   each handed out.
--   fresh: from the line; of tasks only those that are due. again: what a holder left in flight, the first time all
--   together, from then on one at a time, so that one that cannot be settled is found. dead: ONE that was handed out
--   too often; it now lies in the dead letters as well, and its order must be refused. Set aside: one whose refusal
--   could not be written either (of tasks, which need none: at once); it lies in the dead letters only.
-- Stays true: an id is in the line or in flight, never both, never neither, until settled or set aside (I4, I17, Q1);
-- a line that must wait (all units held, or paused) hands nothing out until its stock or its terms change, or the
-- moment that settle named has come;
-- a re-sent call gets the batch it was given before; hand-outs are counted here, before the work (Q12), but not after
-- a holder that gave its batch back in order. TIME of the server is the only clock, and never seems to go back (Q13).
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
local call = ARGV[1] .. '#' .. ARGV[2]
local limit, most, give_up = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local tasks = ARGV[6] == 'tasks'
local last = redis.call('HMGET', KEYS[5], 'hand_call', 'hand_kind', 'hand_count', 'hand_aside', 'last_us',
  'queued_unsure', 'waits_for', 'waits_version', 'waits_until_us', 'version', 'last_seq', 'decide_from_us')
local aside, taken = {}, 0

local function now_us()
  local time = redis.call('TIME')
  return math.max(time[1] * 1000000 + time[2], tonumber(last[5] or '0'))
end

local function with_records(kind, gone, ids)
  local answer = {kind, gone}
  if #ids == 0 then return answer end
  local records = redis.call('HMGET', KEYS[4], unpack(ids))
  for i, id in ipairs(ids) do
    answer[#answer + 1], answer[#answer + 2] = id, records[i] or ''
  end
  return answer
end

-- How many may be taken from a line that waits for a unit or for staff: none while nothing has changed and its time
-- has not come (the end of the sale, or ten seconds), then one, so that what nobody told us of is found.
local function may_take()
  if last[12] and now_us() < tonumber(last[12]) then return 0 end -- tickets are being brought back
  if tasks or not last[7] then return limit end
  local same = last[8] == last[10]
  if same and now_us() < tonumber(last[9] or '0') then return 0 end
  if last[7] == 'waitlist' then redis.call('HSET', KEYS[5], 'waitlisted_to', last[11]) end
  redis.call('HDEL', KEYS[5], 'waits_for')
  return same and 1 or limit
end

local function take_from_line()
  local found
  local limit = may_take()
  if limit == 0 then return 'fresh', {} end
  if tasks then
    found = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now_us()), 'WITHSCORES', 'LIMIT', 0, limit)
  else
    found = redis.call('ZRANGE', KEYS[2], 0, limit - 1, 'WITHSCORES')
  end
  local ids, moved = {}, {}
  for i = 1, #found, 2 do
    ids[#ids + 1] = found[i]
    moved[i], moved[i + 1] = found[i + 1], found[i]
  end
  if #ids > 0 then
    redis.call('ZADD', KEYS[3], unpack(moved))
    redis.call('ZREM', KEYS[2], unpack(ids))
    taken = #ids
  elseif last[6] then
    -- The units of a damaged record were unknown when it was set aside; now nothing waits and the count is known.
    redis.call('HSET', KEYS[5], 'queued', 0)
    redis.call('HDEL', KEYS[5], 'queued_unsure')
  end
  return 'fresh', ids
end

local function note_dead(id, outs)
  redis.call('ZADD', KEYS[7], redis.call('ZSCORE', KEYS[3], id), id)
  redis.call('HSETNX', KEYS[8], id, outs .. '|' .. string.format('%.0f', now_us()))
end

local function set_aside(id)
  aside[#aside + 1] = id
  redis.call('ZREM', KEYS[3], id)
  redis.call('HDEL', KEYS[6], id)
  redis.call('HINCRBY', KEYS[5], 'aside', 1)
  if tasks then return end
  local units = string.match(redis.call('HGET', KEYS[4], id) or '', '^%a|%d+|(%d+)|')
  if units and tonumber(units) > 0 then
    local queued = tonumber(redis.call('HGET', KEYS[5], 'queued') or '0')
    redis.call('HSET', KEYS[5], 'queued', math.max(queued - tonumber(units), 0))
  else
    redis.call('HSET', KEYS[5], 'queued_unsure', 1)
  end
end

local function take_again(left, counted)
  if redis.call('EXISTS', KEYS[6]) == 0 then
    if counted then
      for _, id in ipairs(left) do redis.call('HSET', KEYS[6], id, 1) end
    end
    return 'again', left
  end
  for _, id in ipairs(left) do
    local outs
    if counted then outs = redis.call('HINCRBY', KEYS[6], id, 1)
    else outs = tonumber(redis.call('HGET', KEYS[6], id) or '0') end
    if outs < most then return 'again', {id} end
    note_dead(id, outs)
    if outs < give_up then return 'dead', {id} end
    set_aside(id)
  end
  if redis.call('ZCARD', KEYS[3]) > 0 then return 'again', {} end
  return take_from_line()
end

local left = redis.call('ZRANGE', KEYS[3], 0, limit - 1)
if last[1] == call then
  return with_records(last[2], last[4] or '', {unpack(left, 1, tonumber(last[3]))})
end
local kind, ids
if #left > 0 then kind, ids = take_again(left, last[2] ~= 'given back')
else kind, ids = take_from_line() end
local gone = table.concat(aside, ' ')
-- What the line would wait for may come while this batch is decided: settle compares.
if not tasks then redis.call('HSET', KEYS[5], 'hand_stirs', redis.call('HGET', KEYS[5], 'stirs') or '0') end
redis.call('HSET', KEYS[5], 'hand_call', call, 'hand_kind', kind, 'hand_count', #ids, 'hand_aside', gone)
if taken > 0 then redis.call('HINCRBY', KEYS[5], 'taken', taken) end
if #aside > 0 then redis.call('HINCRBY', KEYS[5], 'dead', #aside) end
return with_records(kind, gone, ids)
