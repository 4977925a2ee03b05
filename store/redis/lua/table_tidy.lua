-- Each script that adds to a table begins with this too. What has ended is kept
-- for a minute, since clocks differ.
local kept = 60000

local gone = redis.call('ZRANGEBYSCORE', ends, '-inf', '(' .. string.format('%.0f', ms - kept), 'LIMIT', 0, 200)
if #gone > 0 then
  -- A server without room takes what follows, and perhaps no word of it.
  redis.call('HDEL', store, 'version', 'rows', 'changes')
  redis.call('HDEL', rows, unpack(gone))
  redis.call('ZREM', changes, unpack(gone))
  redis.call('ZREM', ends, unpack(gone))
  if now then
    leave(now)
  end
end
