-- One TAKE from a sliding window without credit, answered before anything else
-- is defined; see token_bucket_take.lua. What is rare, a changed period and
-- products past 2^53 among it, is left to the script below.
--
-- State: current, start, period, previous, as integers of 6, 7, 6 and 6 bytes;
-- or, where the period is in whole seconds and the counts are below 2^16, the
-- period in seconds, the window's number, current and previous in 12 bytes,
-- which with the header of Redis fit into 32.

local function slidingDecode(s, body)
  if #body == 12 then
    local period, number
    period, number, s.current, s.previous = struct.unpack('>I4I4I2I2', body)
    s.period = period * 1000000
    s.start = number * s.period
    return true
  end
  if #body ~= 25 then return false end
  s.current, s.start, s.period, s.previous = struct.unpack('>I6I7I6I6', body)
  return true
end

local function slidingEncode(s)
  local current, start, period, previous = s.current, s.start, s.period, s.previous
  if current < 65536 and previous < 65536 and period > 0 and period % 1000000 == 0 and start < period * 4294967296 then
    return struct.pack('>I4I4I2I2', period / 1000000, start / period, current, previous)
  end
  return struct.pack('>I6I7I6I6', current, start, period, previous)
end

if #ARGV == 1 then
  local _, kind, flag, _, given, n, leave, limit, w = struct.unpack('>BBBBI8I8I8I8I8', ARGV[1])
  if kind == 0 and leave == 0 and n > 0 and n <= limit then
    local key = KEYS[1]
    local v = redis.call('GET', key)
    local now = given - 1
    if given == 0 then
      local t = redis.call('TIME')
      now = t[1] * 1000000 + t[2]
    end
    local floor, exact = math.floor, 9007199254740991
    local s = {current = 0, start = floor(now / w) * w, period = w, previous = 0}
    local known = not v or slidingDecode(s, v)
    local current, start, previous = s.current, s.start, s.previous
    if known and s.period == w and start <= now + 60000000 then
      local since = now - start
      if since >= 2 * w then
        current, previous = 0, 0
        start = start + floor(since / w) * w
      elseif since >= w then
        current, previous = 0, current
        start = start + w
      end
      local overlap = now > start and w - (now - start) or w
      local product = previous * overlap
      local used = floor(product / w) + current
      if product <= exact and used + n <= limit then
        current = current + n
        local reset = start + 2 * w - floor((w - 1) / current) - now
        local how, ends = 'PX', 3600000
        if given == 0 then how, ends = 'PXAT', math.ceil((now + reset) / 1000) end
        s.current, s.start, s.previous = current, start, previous
        redis.call('SET', key, slidingEncode(s), how, ends)
        if given == 0 then return {limit - used - n, reset, now + reset} end
        return {1, limit - used - n, n, 0, reset, 0, now + reset, now + reset}
      end
      if flag >= 128 then current, used = current + n, used + n end
      -- The counter that has to fade, and to what, for n to fit.
      local count, spare, retry = previous, limit - n - current, start + w - now
      if spare < 0 then count, spare, retry = current, limit - n, retry + w end
      local share = (spare + 1) * w
      if product <= exact and share <= exact and current <= 8796093022207 then
        retry = retry - floor((share - 1) / count)
        local reset = start + w - now
        if current > 0 then
          reset = reset + w - floor((w - 1) / current)
        else
          reset = reset - floor((w - 1) / previous)
        end
        if flag >= 128 then
          local how, ends = 'PX', 3600000
          if given == 0 then how, ends = 'PXAT', math.ceil((now + reset) / 1000) end
          s.current, s.start, s.previous = current, start, previous
          redis.call('SET', key, slidingEncode(s), how, ends)
        end
        local free = used < limit and limit - used or 0
        if given == 0 then return {-1 - free, retry, reset} end
        return {2, free, 0, retry, reset, 0, 0, now + reset}
      end
    end
  end
end
