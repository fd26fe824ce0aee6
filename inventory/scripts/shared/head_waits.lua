-- Say whether the first of a line waits for a held unit, and all after it with it: it does not fit now, and may later.
-- flight, line, records: the numbers of their keys. False also when nobody waits but on standby (they come after all
-- others, and keep nobody waiting), or the record cannot be read.
local function head_waits(flight, line, records, available, held)
  local first = redis.call('ZRANGE', KEYS[flight], 0, 0)[1] or redis.call('ZRANGE', KEYS[line], 0, 0)[1]
  local record = first and redis.call('HGET', KEYS[records], first) or ''
  local units = tonumber(string.match(record, '^[^b]|%d+|(%d+)|') or '0')
  return units > available and units <= available + held
end
-- Where a request lies in the line: at its seq, and one on standby above every seq, so that it comes after all others.
local STANDBY = 4503599627370496 -- 2^52; inventory/records.py has it too
local function line_score(record)
  local letter, seq = string.match(record, '^(%a)|(%d+)|')
  return letter == 'b' and string.format('%.0f', tonumber(seq) + STANDBY) or seq
end
