-- Twin of algorithm/fixed_window.go.
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

local function fixedClear(s)
  s.count, s.finish, s.code = 0, 0, 0
end

local function fixedDecode(s, body)
  local first = string.byte(body)
  if #body == 20 and first < 48 then
    s.count, s.finish, s.code = unpackBytes(fixedFormat, body)
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
  return pack(fixedFormat, count, finish, code, 0)
end

local function fixedCode(r)
  if r.unit ~= 0 then return r.unit end
  return r.period
end

-- calendarEnd picks the window that now is in from the ones that came with the
-- request.
local function calendarEnd(r, now)
  if now < r.second then return r.second end
  if now < r.third then return r.third end
  return r.fourth
end

local function fixedWindow(r, s, now)
  local running = s.count > 0 and now < s.finish
  if running and s.code == fixedCode(r) then return s.count, s.finish end
  local finish
  if r.flag == 1 then
    finish = now + r.period
  elseif r.unit ~= 0 then
    finish = calendarEnd(r, now)
  else
    finish = (floor(now / r.period) + 1) * r.period
  end
  if running then return s.count, finish end
  return 0, finish
end

local function fixedAvailable(r, s, now)
  if s.count == 0 or now >= s.finish then return r.limit end
  return r.limit - s.count
end

local function fixedAdd(r, s, now, n)
  local count, finish = fixedWindow(r, s, now)
  s.count = min(count + min(n, maxCount), maxCount)
  s.finish, s.code = finish, fixedCode(r)
end

local function fixedSub(r, s, now, n, left)
  local count, finish = fixedWindow(r, s, now)
  if count == 0 or left > 0 and now + left < finish - floor(r.period / 2) then return false end
  s.count, s.finish, s.code = count - min(n, count), finish, fixedCode(r)
  return n > 0
end

local function fixedFits(r, s)
  return s.finish
end

local function fixedFresh(r, s, now)
  if s.count == 0 then return now end
  return s.finish
end

local function fixedRule(r, a, b, c, d, e, f)
  r.limit, r.most, r.period = a, a, b
  r.first, r.second, r.third, r.fourth = c, d, e, f
end

algorithms[2] = {
  rule = fixedRule, clear = fixedClear, decode = fixedDecode, encode = fixedEncode,
  available = fixedAvailable, add = fixedAdd, sub = fixedSub,
  fits = fixedFits, fresh = fixedFresh,
}
