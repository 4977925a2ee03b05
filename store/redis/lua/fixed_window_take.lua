-- One TAKE from a fixed window without credit, answered before anything else is
-- defined; see token_bucket_take.lua.
--
-- State: count, finish (the window's end) and code (the period, or for a
-- calendar its unit). It is written in one of two forms. Where the window ends
-- on a whole second and the numbers are small enough it is 19 decimal digits,
-- which Redis keeps as an integer inside its object, in no memory of their
-- own; otherwise it is 19 bytes and a zero.
--
--   digits of the period in seconds, the period, the window's number, 7 digits of count
--   8, the calendar's unit, 10 digits of the end in seconds, 7 digits of count

local fixedFormat = '>I6I7I6B'

local function fixedDecode(s, body)
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

local function fixedEncode(s)
  local count, finish, code = s.count, s.finish, s.code
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
  local _, kind, anchor, unit, given, n, _, limit, period, first, second, third, fourth =
    struct.unpack('>BBBBI8I8I8I8I8I8I8I8I8', ARGV[1])
  if kind == 0 and n > 0 and n <= limit then
    local key = KEYS[1]
    local v = redis.call('GET', key)
    local now = given - 1
    if given == 0 then
      local t = redis.call('TIME')
      now = t[1] * 1000000 + t[2]
    end
    local code = unit > 0 and unit or period
    local s = {count = 0, finish = 0, code = code}
    local known = not v or fixedDecode(s, v)
    if unit > 0 and (now < first or now >= fourth) then known = false end
    if known and (s.code == code or s.count == 0) then
      s.code = code
      if s.count == 0 or now >= s.finish then
        s.count = 0
        if anchor == 1 then
          s.finish = now + period
        elseif unit == 0 then
          s.finish = (math.floor(now / period) + 1) * period
        else
          s.finish = now < second and second or now < third and third or fourth
        end
      end
      local reset = s.finish - now
      local free = limit - s.count
      if n <= free then
        s.count = s.count + n
        local ttl = given == 0 and math.ceil(reset / 1000) or 3600000
        redis.call('SET', key, fixedEncode(s), 'PX', ttl)
        if given == 0 then return {free - n, reset} end
        return {1, free - n, n, 0, reset, 0, s.finish}
      end
      if free < 0 then free = 0 end
      if given == 0 then return {free, reset, reset} end
      return {2, free, 0, reset, reset, 0, s.finish}
    end
  end
end
