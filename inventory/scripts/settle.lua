-- Answer a settled batch: write outcomes, take the requests out of flight, give refused units back to their buyers.
-- KEYS  1 lock   2 in flight   3 records   4 stock   5 hand outs   6 live units
-- ARGV  1 token   2 sku   3 settled channel   4 available   5 held   6 sold   7 returning   8 stock version
--       then for each request: request_id, new record, units, live field ('' when the units stay live)   (at most 1,000)
-- Returns -1 when the token does not hold the lock and nothing changed, else how many were settled by this call.
-- Stays true: only what is in flight is settled, so a re-sent call settles nothing twice; an older stock version never
-- overwrites a newer one; queued counts exactly the units in line and in flight.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
local first, each = 9, 4
local count = (#ARGV - first + 1) / each

local stock = redis.call('HMGET', KEYS[4], 'version', 'queued', 'decided')
if not stock[1] or tonumber(ARGV[8]) >= tonumber(stock[1]) then
  redis.call('HSET', KEYS[4], 'available', ARGV[4], 'held', ARGV[5], 'sold', ARGV[6], 'returning', ARGV[7],
    'version', ARGV[8])
end

local settled, units_settled = 0, 0
if count > 0 then
  local ids = {}
  for i = 1, count do ids[i] = ARGV[first + (i - 1) * each] end
  local scores = redis.call('ZMSCORE', KEYS[2], unpack(ids))
  local gone, records = {}, {}
  for i = 1, count do
    if scores[i] then
      local at = first + (i - 1) * each
      settled = settled + 1
      gone[settled] = ids[i]
      records[settled * 2 - 1], records[settled * 2] = ids[i], ARGV[at + 1]
      units_settled = units_settled + tonumber(ARGV[at + 2])
      if ARGV[at + 3] ~= '' then
        if redis.call('HINCRBY', KEYS[6], ARGV[at + 3], -tonumber(ARGV[at + 2])) <= 0 then
          redis.call('HDEL', KEYS[6], ARGV[at + 3])
        end
      end
    end
  end
  if settled > 0 then
    redis.call('HSET', KEYS[3], unpack(records))
    redis.call('ZREM', KEYS[2], unpack(gone))
    redis.call('HDEL', KEYS[5], unpack(gone))
    redis.call('HSET', KEYS[4], 'queued', math.max(tonumber(stock[2] or '0') - units_settled, 0),
      'decided', tonumber(stock[3] or '0') + settled)
  end
end
redis.call('PUBLISH', ARGV[3], ARGV[2])
return settled
