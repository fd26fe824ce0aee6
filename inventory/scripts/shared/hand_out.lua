-- Hand out a batch: what is in flight first, only then what take_fresh moves there. Returns the answer of the script.
-- KEYS, ARGV 1 to 4 and the answer are those of take.lua and queue_take.lua; now_us: the server's time, as text.
-- take_fresh() returns ids and, if it has read them, their records. put_away(id, outs) is asked about one that was
-- handed out too often: it returns true when it has taken it out of flight, false to hand it out as 'dead'.
local function hand_out(now_us, take_fresh, put_away)
  local call, limit, most = ARGV[1] .. '#' .. ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
  local last = redis.call('HMGET', KEYS[5], 'hand_call', 'hand_kind', 'hand_count', 'hand_aside')
  local gone = {}

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
      redis.call('ZADD', KEYS[7], redis.call('ZSCORE', KEYS[3], id), id)
      redis.call('HSETNX', KEYS[8], id, outs .. '|' .. now_us)
      if not put_away(id, outs) then return 'dead', {id} end
      gone[#gone + 1] = id
    end
    if redis.call('ZCARD', KEYS[3]) > 0 then return 'again', {} end
    return 'fresh', take_fresh()
  end

  local left = redis.call('ZRANGE', KEYS[3], 0, limit - 1)
  local kind, ids, records, aside
  if last[1] == call then
    kind, ids, aside = last[2], {unpack(left, 1, tonumber(last[3]))}, last[4] or ''
  else
    if #left > 0 then kind, ids, records = take_again(left, last[2] ~= 'given back')
    else kind, ids, records = 'fresh', take_fresh() end
    aside = table.concat(gone, ' ')
    redis.call('HSET', KEYS[5], 'hand_call', call, 'hand_kind', kind, 'hand_count', #ids, 'hand_aside', aside)
  end
  if not records and #ids > 0 then records = redis.call('HMGET', KEYS[4], unpack(ids)) end
  local answer = {kind, aside}
  for i, id in ipairs(ids) do answer[#answer + 1], answer[#answer + 2] = id, records[i] or '' end
  return answer
end
