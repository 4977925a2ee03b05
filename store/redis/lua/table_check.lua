-- Each script of a table begins with this. KEYS are a hash of the rows, sorted
-- sets of when each row was changed last and of when it ends, the version, and a
-- hash that says which table this is. A table of which a part is missing, such
-- as one that the server evicted, begins again: what is left of it is of no use.
local rows, changes, ends, version, store = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local time = redis.call('TIME')
local us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local ms = math.floor(us / 1000)

-- What the last change left behind, for the next script to tell whether it is
-- still all there.
local function leave(text)
  redis.call('SET', version, text)
  redis.call('HSET', store, 'version', text, 'rows', redis.call('HLEN', rows), 'changes', redis.call('ZCARD', changes))
end

local known = redis.call('HMGET', store, 'id', 'generation', 'version', 'rows', 'changes')
local id, generation, then_version, then_rows = known[1], known[2] or '0', known[3], tonumber(known[4] or '0')
local now, n, c = redis.call('GET', version), redis.call('HLEN', rows), redis.call('ZCARD', changes)
local then_changes = tonumber(known[5] or c) -- earlier releases did not count them
if then_version and (not now or now == then_version and (n ~= then_rows or c ~= then_changes)) or
  c ~= redis.call('ZCARD', ends) or n > c then
  redis.call('DEL', rows, changes, ends, version, store)
  id, generation, now = false, '0', false
elseif now and now ~= then_version then
  -- Written by an earlier release, which lets tables expire.
  redis.pcall('HSET', store, 'version', now, 'rows', n)
  for i = 1, 4 do
    redis.call('PERSIST', KEYS[i])
  end
end
if not id then
  id = redis.sha1hex(store .. time[1] .. '.' .. time[2])
  redis.call('HSET', store, 'id', id)
end
