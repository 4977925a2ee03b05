-- A change of a table. ARGV: what to do, the row's name, its value, its end in ms
-- since the epoch, how many rows there may be, the latest version that the
-- caller has seen, and 1 if the caller knows of such a row. The answer is the
-- new version, 0 if there was no such row, or -1 if the table is full.
local what, name, value, last, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

-- A deleted row is remembered for a week, so that a process which has not looked
-- since does not bring it back; for ten minutes if very many are.
local remembered, crowded = 604800000, 600000

local old = redis.call('HEXISTS', rows, name) == 1
if what == 'put' and not old and redis.call('HLEN', rows) >= most then
  return '-1'
elseif what == 'delete' and not old and ARGV[7] ~= '1' then
  return '0'
end

-- By the clock, so that a table that was lost and begun again, or that of a
-- replica that had not heard of everything, does not come to a version that was
-- there before.
local next = math.max(us, tonumber(now or '0') + 1, tonumber(ARGV[6]) + 1)
local text = string.format('%.0f', next)
if what == 'put' then
  if old then
    -- Who knows only the longer one must go on finding this one in its place.
    last = math.max(last, tonumber(redis.call('ZSCORE', ends, name) or '0'))
  end
  redis.call('HSET', rows, name, value)
  redis.call('ZADD', changes, text, name)
  redis.call('ZADD', ends, string.format('%.0f', last), name)
elseif what == 'delete' then
  if redis.call('ZCARD', changes) - redis.call('HLEN', rows) >= most then
    remembered = crowded
  end
  redis.call('HDEL', rows, name)
  redis.call('ZADD', changes, text, name)
  redis.call('ZADD', ends, string.format('%.0f', ms + remembered), name)
end
leave(text)
return text
