#!lua flags=allow-oom
-- Put a dead letter of a SKU back into its line, or remove it from the list.
-- KEYS  1 dead letters   2 dead letter notes   3 line   4 in flight   5 records   6 stock   7 live units   8 set aside
-- ARGV  1 'retry' or 'discard'   2 request_id   3 its record as the caller found it, when it could not read it; else ''
-- Returns a text: 'retried' or 'discarded'; or the reason why nothing changed: 'unknown' no such dead letter,
--   'in_flight' its refusal is under way, 'decided' (retry) it was told its outcome, 'damaged' (retry) its record
--   cannot be read, 'undecided' (discard) its order must be written first.
-- Stays true: what was decided is never queued again (I3); a retried request has its own seq again, and is marked as
-- brought back, because later ones may have been decided (I8); who was told "waitlisted" stays so; what is discarded is
-- decided for good, except one whose record cannot be read: nobody knows whose it is, so its record goes, and its ticket
-- alone may bring it back (I4). A call sent twice finds 'unknown': it must be sent once.
-- Shared: head_waits
local mode, id = ARGV[1], ARGV[2]
if not redis.call('ZSCORE', KEYS[1], id) then return 'unknown' end
if redis.call('ZSCORE', KEYS[4], id) then return 'in_flight' end
local record = redis.call('HGET', KEYS[5], id)
local letter, seq, units, sale, buyer = string.match(record or '', '^(%a)|(%d+)|(%d+)|(%d+)|([^|]+)')
if letter and not string.find('qwbhpecsrf', letter, 1, true) then letter = nil end
local damaged = not letter or tonumber(units) < 1 or record == ARGV[3]
local decided = letter and not string.find('qwb', letter, 1, true)
if mode == 'retry' and decided then return 'decided' end
if mode == 'retry' and damaged then return 'damaged' end
if mode == 'discard' and not decided and not damaged then return 'undecided' end
redis.call('ZREM', KEYS[1], id)
redis.call('HDEL', KEYS[2], id)
if decided then return 'discarded' end
redis.call('ZREM', KEYS[8], id)
redis.call('HINCRBY', KEYS[6], 'changes', 1)
if mode == 'retry' then
  local stock = redis.call('HMGET', KEYS[6], 'available', 'held', 'last_seq')
  if head_waits(4, 3, 5, tonumber(stock[1] or '0'), tonumber(stock[2] or '0')) then
    redis.call('HSET', KEYS[6], 'waitlisted_to', stock[3] or '0')
  end
  redis.call('ZADD', KEYS[3], line_score(record), id)
  redis.call('HSET', KEYS[5], id, string.match(record, '|r$') and record or record .. '|r')
  redis.call('HINCRBY', KEYS[6], 'queued', units)
  return 'retried'
end
redis.call('HDEL', KEYS[5], id)
redis.call('HINCRBY', KEYS[6], 'discarded', 1)
-- Subtracted from 0: the unary minus of a zero is written "-0", which Redis 7 refuses in the middle of the script.
if units and redis.call('HINCRBY', KEYS[7], sale .. ':' .. buyer, 0 - tonumber(units)) <= 0 then
  redis.call('HDEL', KEYS[7], sale .. ':' .. buyer)
end
return 'discarded'
