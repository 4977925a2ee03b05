-- Records when the key of a state was created and last changed, in a key of its
-- own: the state's name and ':@'. It wraps redis.call for the script below, which
-- reads a state before it writes it. Both keys are in one slot and end together.
--
-- Times are microseconds on the server's clock: created, or 0 if that was not
-- recorded, and changed.
local redis = (function(redis)
  local call, timesFormat = redis.call, '>I7I7'
  local existed, now = {}, nil

  -- note is called after the state of key was written. That may have been refused
  -- for want of memory; once a script has written, it may go on.
  local function note(key, how, ends)
    if not now then
      local t = call('TIME')
      now = t[1] * 1000000 + t[2]
    end
    local name, created = key .. ':@', now
    if existed[key] then
      local v = call('GET', name)
      created = v and #v == 14 and struct.unpack(timesFormat, v) or 0
    end
    call('SET', name, struct.pack(timesFormat, created, now), how, ends)
  end

  return setmetatable({call = function(command, ...)
    local key, a, b, c = ...
    if command == 'DEL' then
      existed[key] = false
      return call('DEL', key, key .. ':@')
    end
    local answer = call(command, ...)
    if command == 'GET' then
      existed[key] = answer ~= false
    elseif command == 'GETRANGE' then
      if a == 0 then existed[key] = answer ~= '' end
    elseif command == 'TIME' then
      now = answer[1] * 1000000 + answer[2]
    elseif command == 'SET' then
      note(key, b, c)
    elseif command == 'PEXPIREAT' then
      note(key, 'PXAT', a)
    elseif command == 'PEXPIRE' then
      note(key, 'PX', a)
    end
    return answer
  end}, {__index = redis})
end)(redis)
