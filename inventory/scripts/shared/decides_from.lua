-- Return the moment before which nobody in line is decided, as tickets have time to come after a loss; 0 for none.
-- stock: the number of its key. A moment further ahead than it was when it was written, and than the second by which
-- clocks may differ, is of a clock that was ahead of this one: nobody waits for it.
local function decides_from(stock, now_us)
  local found = redis.call('HMGET', KEYS[stock], 'decide_from_us', 'decide_grace_us')
  local from_us, grace_us = tonumber(found[1] or '0'), tonumber(found[2] or '')
  return grace_us and from_us - now_us > grace_us + 1000000 and 0 or from_us
end
