-- Answers the times in KEYS[2] of the state KEYS[1], or zeros; see key_times.lua.
local v = redis.call('EXISTS', KEYS[1]) == 1 and redis.call('GET', KEYS[2])
if not v or #v ~= 14 then return {0, 0} end
local created, changed = struct.unpack('>I7I7', v)
return {created, changed}
