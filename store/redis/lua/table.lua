-- A table that processes share: KEYS are a hash of the rows, sorted sets of when
-- each row was changed last and of when it ends, and the version. ARGV: what to
-- do, the row's name, its value, its end in ms since the epoch, and how many
-- rows there may be. The answer is the new version, 0 if there was no such row,
-- or -1 if the table is full.
local rows, changes, ends, version = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local what, name, value, last, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local time = redis.call('TIME')
local us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local ms = math.floor(us / 1000)
-- A deleted row is remembered as long as that, for those who have not looked
-- yet; what has ended is kept for a minute, since clocks differ.
local remembered, kept = 600000, 60000

local gone = redis.call('ZRANGEBYSCORE', ends, '-inf', '(' .. string.format('%.0f', ms - kept), 'LIMIT', 0, 200)
if #gone > 0 then
  redis.call('HDEL', rows, unpack(gone))
  redis.call('ZREM', changes, unpack(gone))
  redis.call('ZREM', ends, unpack(gone))
end

if what == 'put' then
  if redis.call('HEXISTS', rows, name) == 0 and redis.call('HLEN', rows) >= most then
    return '-1'
  end
elseif what == 'delete' and redis.call('HEXISTS', rows, name) == 0 then
  return '0'
end

-- By the clock, so that a table that was lost and begun anew, or that of a
-- replica that had not heard of everything, does not come to a version that was
-- there before.
local next = math.max(us, tonumber(redis.call('GET', version) or '0') + 1)
local text = string.format('%.0f', next)
if what == 'put' then
  redis.call('HSET', rows, name, value)
  redis.call('ZADD', changes, text, name)
  redis.call('ZADD', ends, string.format('%.0f', last), name)
elseif what == 'delete' then
  redis.call('HDEL', rows, name)
  redis.call('ZADD', changes, text, name)
  redis.call('ZADD', ends, string.format('%.0f', ms + remembered), name)
end
redis.call('SET', version, text)

local latest = redis.call('ZREVRANGE', ends, 0, 0, 'WITHSCORES')
local expires = math.max(tonumber(latest[2] or '0'), ms + remembered) + kept
for i = 1, #KEYS do
  redis.call('PEXPIREAT', KEYS[i], string.format('%.0f', expires))
end
return text
