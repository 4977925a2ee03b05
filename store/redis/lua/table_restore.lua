-- Rows that a process knows and the table has lost. ARGV: 1 to count this as a new
-- generation, and of each row put or delete, the name, the version of that
-- change, the row's end in ms and its value. A row is taken where the table knows
-- nothing newer of it. The answer is how many were.
local taken, latest = 0, 0
for i = 2, #ARGV, 5 do
  local put, name, at, last = ARGV[i] == 'put', ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local have = tonumber(redis.call('ZSCORE', changes, name) or '-1')
  local lost = put and have == at and redis.call('HEXISTS', rows, name) == 0
  if last > ms and (at > have or lost) then
    if put then
      redis.call('HSET', rows, name, ARGV[i + 4])
    else
      redis.call('HDEL', rows, name)
    end
    redis.call('ZADD', changes, ARGV[i + 2], name)
    redis.call('ZADD', ends, ARGV[i + 3], name)
    taken, latest = taken + 1, math.max(latest, at)
  end
end
if ARGV[1] == '1' then
  redis.call('HINCRBY', store, 'generation', 1)
end
if taken > 0 then
  leave(string.format('%.0f', math.max(us, latest + 1, tonumber(now or '0') + 1)))
end
return taken
