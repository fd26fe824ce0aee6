-- Read a page of a SKU's records for the audit, and where those who wait lie.
-- KEYS  1 records   2 line   3 in flight   4 dead letters
-- ARGV  1 the cursor of the last page, '0' = begin   2 about how many records
-- Returns the next cursor ('0' = that was the last page), then for each: request_id, record, and of one that waits its
--   place: 'line', 'flight', 'dead' or '' (nowhere); '' of every other.
-- Stays true: reads only; record and place are of one moment, so one that moves is never seen nowhere.
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local answer = {page[1]}
local found = page[2]
for i = 1, #found, 2 do
  local id, record, place = found[i], found[i + 1], ''
  local letter = string.sub(record, 1, 1)
  if string.find('qwb', letter, 1, true) and letter ~= '' then
    if redis.call('ZSCORE', KEYS[2], id) then place = 'line'
    elseif redis.call('ZSCORE', KEYS[3], id) then place = 'flight'
    elseif redis.call('ZSCORE', KEYS[4], id) then place = 'dead' end
  end
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = id, record, place
end
return answer
