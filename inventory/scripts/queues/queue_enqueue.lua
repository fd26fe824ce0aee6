-- Put tasks into a queue, in the order given; one that it has already is left where it is.
-- KEYS  1 waiting   2 in flight   3 dead letters   4 records   5 state   6 reply of this call
-- ARGV  1 most tasks that may wait or be in flight   2 delay in µs   3 how long the reply is kept, in ms
--       then for each task: id, payload   (at most 1,000)
-- Returns a flat list of texts, two a task: 'new', 'present' or 'full', and when it is due in µs ('' when full).
-- Stays true: an id lies in one place only, with one record (S12); a call re-sent while its reply is kept gets that
-- reply and changes nothing, also when its tasks were worked meanwhile; at equal delay who came first is due first;
-- TIME of the server is the only clock, and it never seems to go back (Q13).
local given = redis.call('GET', KEYS[6])
if given then return cjson.decode(given) end
local ids = {}
for i = 1, (#ARGV - 3) / 2 do ids[i] = ARGV[i * 2 + 2] end
local known = redis.call('HMGET', KEYS[4], unpack(ids))
local state = redis.call('HMGET', KEYS[5], 'last_us', 'enqueued')
local time = redis.call('TIME')
local last_us = math.max(tonumber(state[1] or '0') + 1, time[1] * 1000000 + time[2]) - 1
local space = tonumber(ARGV[1]) - redis.call('ZCARD', KEYS[1]) - redis.call('ZCARD', KEYS[2])
local delay_us = tonumber(ARGV[2])
local answer, seen, members, records, added = {}, {}, {}, {}, 0
for i, id in ipairs(ids) do
  local code, due = 'new', seen[id]
  if due then code = 'present'
  elseif known[i] then
    code = 'present'
    due = redis.call('ZSCORE', KEYS[1], id) or redis.call('ZSCORE', KEYS[2], id) or redis.call('ZSCORE', KEYS[3], id)
  elseif added >= space then code, due = 'full', ''
  else
    added, last_us = added + 1, last_us + 1
    due = string.format('%.0f', last_us + delay_us)
    seen[id] = due
    members[added * 2 - 1], members[added * 2] = due, id
    records[added * 2 - 1], records[added * 2] = id, ARGV[i * 2 + 3]
  end
  answer[i * 2 - 1], answer[i * 2] = code, due or ''
end
if added > 0 then
  redis.call('ZADD', KEYS[1], unpack(members))
  redis.call('HSET', KEYS[4], unpack(records))
  redis.call('HSET', KEYS[5], 'last_us', string.format('%.0f', last_us), 'enqueued', tonumber(state[2] or '0') + added)
  redis.call('SET', KEYS[6], cjson.encode(answer), 'PX', ARGV[3])
end
return answer
