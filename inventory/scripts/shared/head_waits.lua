-- Say whether the first of a line waits for a held unit, and all after it with it: it does not fit now, and may later.
-- flight, line, records: the numbers of their keys. False also when nobody waits, or the record cannot be read.
local function head_waits(flight, line, records, available, held)
  local first = redis.call('ZRANGE', KEYS[flight], 0, 0)[1] or redis.call('ZRANGE', KEYS[line], 0, 0)[1]
  local record = first and redis.call('HGET', KEYS[records], first) or ''
  local units = tonumber(string.match(record, '^%a|%d+|(%d+)|') or '0')
  return units > available and units <= available + held
end
