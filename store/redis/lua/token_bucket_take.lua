-- Twin of Take in algorithm/token_bucket.go: one TAKE from a bucket without
-- credit, answered before anything else is defined, because to define functions
-- takes as long as to decide. The answer is remaining, reset and until when the
-- take counts if the request may pass at once, or -1-remaining, retry and reset
-- if it may not. What is rare is left to the script below, also a state that is more
-- than a minute ahead, which may have to be moved. When the key ends is
-- written as a time (PXAT), not as one from now on: see main.lua.
if #ARGV == 1 then
  local alg, kind, _, _, given, n, leave, late, burst, token, leak, unwaited, tick =
    struct.unpack('>BBBBI8I8I8I8I8I8I8I8I8', ARGV[1])
  local capacity = unwaited
  if alg == 1 then capacity = burst * token end
  if kind == 0 and leave == 0 and n > 0 and n <= burst and leak > 0 then
    local key = KEYS[1]
    local v = redis.call('GET', key)
    local now = given - 1
    if given == 0 then
      local t = redis.call('TIME')
      now = t[1] * 1000000 + t[2]
    end
    local used, last, size = 0, now, token
    if v then
      size = 0
      if #v == 21 then used, last, size = struct.unpack('>I7I7I7', v) end
    end
    if size == token and last <= now + 60000000 then
      local floor = math.floor
      if now > last then
        local leaked = (now - last) * leak
        if tick ~= 1 then leaked = (floor(now / tick) - floor(last / tick)) * leak end
        used = leaked < used and used - leaked or 0
        last = now
      end
      local ceil = math.ceil
      local room = capacity - n * token
      -- What is used drains a tick at a time from behind on.
      local behind = last - now
      if tick ~= 1 then behind = floor(last / tick) * tick - now end
      if used > room or alg == 1 and used > late then
        local free = capacity - used
        free = free > 0 and floor(free / token) or 0
        local over = used - room
        if alg == 1 then
          if used - late > over then over = used - late end
          local inTime = used > late and 0 or floor((late - used) / token) + 1
          if inTime < free then free = inTime end
        end
        local retry, reset = behind + ceil(over / leak) * tick, behind + ceil(used / leak) * tick
        if now + reset <= 9007199254740991 then
          if given == 0 then return {-1 - free, retry, reset} end
          return {2, free, 0, retry, reset, 0, 0, now + reset}
        end
      else
        local after = used + n * token
        local reset = behind + ceil(after / leak) * tick
        if now + reset <= 9007199254740991 then
          local how, ends = 'PX', 3600000
          if given == 0 then how, ends = 'PXAT', ceil((now + reset) / 1000) end
          redis.call('SET', key, struct.pack('>I7I7I7', after, last, token), how, ends)
          local free = floor((capacity - after) / token)
          local delay = 0
          if alg == 1 then
            if used > unwaited then delay = behind + ceil((used - unwaited) / leak) * tick end
            local inTime = after > late and 0 or floor((late - after) / token) + 1
            if inTime < free then free = inTime end
          end
          if given == 0 and delay == 0 then return {free, reset, now + reset} end
          return {1, free, n, 0, reset, delay, now + reset, given > 0 and now + reset or nil}
        end
      end
    end
  end
end
