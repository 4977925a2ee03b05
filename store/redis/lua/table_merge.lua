-- Rows of another region's table that are newer than what is here. ARGV: how many
-- rows there may be, the latest version that the caller has seen, the other
-- region, how far its table has been read then, and of each row the name, the
-- version of what it replaces, what its own version must exceed, its end in ms
-- and its value. A row that has changed since the caller has read it stays. The
-- answer is how many rows were written, how many had changed, and how many found
-- no space; the table has been read that far only if these two are 0.
local most, next = tonumber(ARGV[1]), math.max(tonumber(now or '0'), tonumber(ARGV[2]))
local written, changed, full = 0, 0, 0
for i = 5, #ARGV, 5 do
  local name = ARGV[i]
  local have = redis.call('ZSCORE', changes, name)
  if have and tonumber(have) ~= tonumber(ARGV[i + 1]) then
    changed = changed + 1
  elseif redis.call('HEXISTS', rows, name) == 0 and redis.call('HLEN', rows) >= most then
    full = full + 1
  else
    next = math.max(us, next + 1, tonumber(ARGV[i + 2]) + 1)
    redis.call('HSET', rows, name, ARGV[i + 4])
    redis.call('ZADD', changes, string.format('%.0f', next), name)
    redis.call('ZADD', ends, ARGV[i + 3], name)
    written = written + 1
  end
end
if written > 0 then
  leave(string.format('%.0f', next))
end
if changed == 0 and full == 0 then
  redis.call('HSET', store, 'read:' .. ARGV[3], ARGV[4])
end
return {written, changed, full}
