-- One TAKE from a fixed window without credit, answered before anything else is
-- defined; see token_bucket_take.lua.
--
-- State: count, finish (the window's end) and code (the period, or for a
-- calendar its unit, plus 6 in the caller's own zone). It is written in the
-- smallest of three forms.
--
-- Up to 832 requests in a window of a usual length are a number below 10000,
-- which Redis shares among all keys that have it: 12 times the count, plus the
-- place of the code in fixedCodes. The window ends when the key does; both are
-- on a whole second, so that a few milliseconds more or less do not matter.
-- Credit has a time of its own, and a time that the caller gave is none of the
-- server's: with these the window's end has to be written.
--
-- Where the window ends on a whole second and the numbers are small enough it is
-- 19 decimal digits, which Redis keeps as an integer inside its object, in no
-- memory of their own; otherwise it is 19 bytes and a zero.
--
--   digits of the period in seconds, the period, the window's number, 7 digits of count
--   8, the code of a calendar, 10 digits of the end in seconds, 7 digits of count

local fixedFormat = '>I6I7I6B'
local fixedCodes = {1, 2, 3, 4, 5, 6, 1000000, 10000000, 60000000, 3600000000, 86400000000, 604800000000}

-- fixedEnd returns when key ends, in microseconds, or nil if it has no end. A
-- server before Redis 7.0 says only what is left, which is off if its clock is
-- set just then.
local function fixedEnd(key)
  local ends = redis.pcall('PEXPIRETIME', key)
  if type(ends) == 'number' then return ends >= 0 and ends * 1000 or nil end
  local left, t = redis.call('PTTL', key), redis.call('TIME')
  return left >= 0 and t[1] * 1000000 + t[2] + left * 1000 or nil
end

-- fixedDecode reads body, the value of key.
local function fixedDecode(s, body, key)
  if #body <= 4 then
    local packed, ends = tonumber(body), fixedEnd(key)
    if not packed or not ends or packed < 0 or packed % 1 ~= 0 then return false end
    s.code = fixedCodes[packed % 12 + 1]
    s.count = math.floor(packed / 12)
    s.finish = math.floor(ends / 1000000 + 0.5) * 1000000
    return true
  end
  local first = string.byte(body)
  if #body == 20 and first < 48 then
    s.count, s.finish, s.code = struct.unpack(fixedFormat, body)
    return true
  end
  local digits = first - 48
  if digits < 1 or digits > 8 or #body < 10 or #body > 19 then return false end
  s.count = tonumber(string.sub(body, -7))
  if digits == 8 then
    s.code = tonumber(string.sub(body, 2, 2))
    s.finish = tonumber(string.sub(body, 3, 12)) * 1000000
    return true
  end
  s.code = tonumber(string.sub(body, 2, 1 + digits)) * 1000000
  s.finish = tonumber(string.sub(body, 2 + digits, -8)) * s.code
  return true
end

-- fixedEncode writes s. ends reports whether the key will end with the window,
-- on the server's clock.
local function fixedEncode(s, ends)
  local count, finish, code = s.count, s.finish, s.code
  if ends and count > 0 and count <= 832 and finish % 1000000 == 0 then
    for i = 1, 12 do
      if fixedCodes[i] == code then return count * 12 + i - 1 end
    end
  end
  if count < 10000000 and finish % 1000000 == 0 then
    local seconds = finish / 1000000
    if code < 10 then
      if seconds >= 1000000000 and seconds < 10000000000 then
        return string.format('8%d%d%07d', code, seconds, count)
      end
    elseif code % 1000000 == 0 and code < 10000000000000 and finish % code == 0 then
      local period = string.format('%d', code / 1000000)
      local body = string.format('%d%s%d%07d', #period, period, finish / code, count)
      if #body <= 19 then return body end
    end
  end
  return struct.pack(fixedFormat, count, finish, code, 0)
end

if #ARGV == 1 then
  local _, kind, flag, unit, given, n, leave, limit, period, first, second, third, fourth =
    struct.unpack('>BBBBI8I8I8I8I8I8I8I8I8', ARGV[1])
  if kind == 0 and leave == 0 and n > 0 and n <= limit then
    local key = KEYS[1]
    local v = redis.call('GET', key)
    local now = given - 1
    if given == 0 then
      local t = redis.call('TIME')
      now = t[1] * 1000000 + t[2]
    end
    local code = unit > 0 and unit or period
    local s = {count = 0, finish = 0, code = code}
    local known = not v or fixedDecode(s, v, key)
    if unit > 0 and (now < first or now >= fourth or unit > 6) then known = false end
    if unit > 0 then
      known = known and s.finish <= third
    else
      known = known and s.finish <= now + period + 60000000
    end
    if known and (s.code == code or s.count == 0) then
      s.code = code
      if s.count == 0 or now >= s.finish then
        s.count = 0
        if flag % 128 == 1 then
          s.finish = now + period
        elseif unit == 0 then
          s.finish = (math.floor(now / period) + 1) * period
        else
          s.finish = now < second and second or now < third and third or fourth
        end
      end
      local reset = s.finish - now
      local free = limit - s.count
      local passes = n <= free
      if passes or flag >= 128 then
        s.count = math.min(s.count + n, 8796093022207)
        free = free - n
        local how, ends = 'PX', 3600000
        if given == 0 then how, ends = 'PXAT', math.ceil(s.finish / 1000) end
        redis.call('SET', key, fixedEncode(s, given == 0), how, ends)
      end
      if passes then
        if given == 0 then return {free, reset, s.finish} end
        return {1, free, n, 0, reset, 0, s.finish, s.finish}
      end
      if free < 0 then free = 0 end
      if given == 0 then return {-1 - free, reset, reset} end
      return {2, free, 0, reset, reset, 0, 0, s.finish}
    end
  end
end
