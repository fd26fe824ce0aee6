#!lua flags=allow-oom
-- Answer a settled batch: write outcomes, take the requests out of flight, put those who must wait back in line.
-- KEYS  1 lock   2 in flight   3 records   4 stock   5 hand outs   6 live units   7 line   8 holds
-- ARGV  1 token   2 sku   3 settled channel   4 available   5 held   6 sold   7 returning   8 stock version
--       9 why the line must wait now ('waitlist', 'paused'), '' = it need not   10 until when at most, in µs
--       11 hand-outs of one whose refusal is due   12 call number of the take whose batch this answers
--       then for each request: request_id, new record ('' when it stays in line), units, live field  (at most 1,000)
-- Returns -1 when the token does not hold the lock and nothing changed, else how many were settled by this call.
-- Stays true: only what is in flight is settled, so a re-sent call settles nothing twice; only the last take's batch is
-- put back, so a call that comes again behind a later take leaves that take's batch in flight, though it may hold the
-- same requests; an older stock version never overwrites a newer one; queued counts exactly the units in line and in
-- flight; who stays keeps its seq (I8); an outcome that is known already (paid, expired meanwhile) is not overwritten
-- by the hold before it (I19); units leave a buyer's live ones when their request does (I7).
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
local rank = {q = 0, w = 0, h = 1, e = 2, c = 2, s = 2, r = 2, p = 3, f = 4}
local live = {q = true, w = true, h = true, p = true}
local first, each = 13, 4
local count = (#ARGV - first + 1) / each

local stock = redis.call('HMGET', KEYS[4], 'version', 'queued', 'decided', 'hand_call')
-- Who stays may be handed out again at once; then only the number of the take tells the two batches apart.
local is_last_batch = stock[4] == ARGV[1] .. '#' .. ARGV[12]
if not stock[1] or tonumber(ARGV[8]) >= tonumber(stock[1]) then
  redis.call('HSET', KEYS[4], 'available', ARGV[4], 'held', ARGV[5], 'sold', ARGV[6], 'returning', ARGV[7],
    'version', ARGV[8])
end

local settled, units_settled = 0, 0
local answered = false
if count > 0 then
  local ids = {}
  for i = 1, count do ids[i] = ARGV[first + (i - 1) * each] end
  local scores = redis.call('ZMSCORE', KEYS[2], unpack(ids))
  local known = redis.call('HMGET', KEYS[3], unpack(ids))
  local gone, records, back, holds = {}, {}, {}, {}
  for i = 1, count do
    local at = first + (i - 1) * each
    local record = ARGV[at + 1]
    if scores[i] and (record ~= '' or is_last_batch) then
      gone[#gone + 1] = ids[i]
      if record == '' then
        back[#back + 1], back[#back + 2] = scores[i], ids[i]
      else
        settled = settled + 1
        units_settled = units_settled + tonumber(ARGV[at + 2])
        local is, was = string.sub(record, 1, 1), string.sub(known[i] or 'q', 1, 1)
        if rank[is] > (rank[was] or 0) then
          records[#records + 1], records[#records + 2] = ids[i], record
          if not live[is] and redis.call('HINCRBY', KEYS[6], ARGV[at + 3], 0 - tonumber(ARGV[at + 2])) <= 0 then
            redis.call('HDEL', KEYS[6], ARGV[at + 3])
          end
          local ends = string.match(record, '^h|%d+|%d+|%d+|[^|]+|(%d+)$')
          if ends then holds[#holds + 1], holds[#holds + 2] = ends, ids[i] end
        end
      end
    end
  end
  if #records > 0 then redis.call('HSET', KEYS[3], unpack(records)) end
  if #holds > 0 then redis.call('ZADD', KEYS[8], unpack(holds)) end
  if #back > 0 then redis.call('ZADD', KEYS[7], unpack(back)) end
  answered = #gone > 0
  if answered then
    redis.call('ZREM', KEYS[2], unpack(gone))
    redis.call('HDEL', KEYS[5], unpack(gone))
  end
  if settled > 0 then
    redis.call('HSET', KEYS[4], 'queued', math.max(tonumber(stock[2] or '0') - units_settled, 0),
      'decided', tonumber(stock[3] or '0') + settled)
  end
end
-- Sent again, it must not put the batch that was taken after it back in line, nor let the line wait anew.
local must_wait = answered and ARGV[9] ~= ''
if must_wait then
  -- What is still in flight comes after those who wait, so it waits behind them; not one whose refusal is due.
  local rest, behind, freed = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), {}, {}
  for i = 1, #rest, 2 do
    if tonumber(redis.call('HGET', KEYS[5], rest[i]) or '0') < tonumber(ARGV[11]) then
      behind[#behind + 1], behind[#behind + 2] = rest[i + 1], rest[i]
      freed[#freed + 1] = rest[i]
    end
  end
  if #freed > 0 then
    redis.call('ZADD', KEYS[7], unpack(behind))
    redis.call('ZREM', KEYS[2], unpack(freed))
    redis.call('HDEL', KEYS[5], unpack(freed))
  end
end
-- What the line would wait for may have come while this batch was decided: then it need not wait.
local stirs = redis.call('HMGET', KEYS[4], 'stirs', 'hand_stirs')
if must_wait and (stirs[1] or '0') == (stirs[2] or '0') then
  local time = redis.call('TIME')
  local now_us = time[1] * 1000000 + time[2]
  -- Nothing may be certain for ever, and a clock that differs from the database's must not make us look all the time.
  local until_us = math.max(math.min(tonumber(ARGV[10]), now_us + 10000000), now_us + 250000)
  redis.call('HSET', KEYS[4], 'waits_for', ARGV[9], 'waits_version', ARGV[8],
    'waits_us', string.format('%.0f', now_us), 'waits_until_us', string.format('%.0f', until_us))
end
redis.call('PUBLISH', ARGV[3], ARGV[2])
return settled
