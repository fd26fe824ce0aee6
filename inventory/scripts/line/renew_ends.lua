#!lua flags=allow-oom
-- Give holds another end, after a restored database brought them back with their full time.
-- KEYS  1 records
-- ARGV  for each hold (at most 500): request_id, its record as it was read, its record with the new end
-- Returns how many were written.
-- Stays true: a record that changed since it was read is left as it is (I19), so a repeated call changes nothing.
local done = 0
for i = 1, #ARGV, 3 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2])
    done = done + 1
  end
end
return done
