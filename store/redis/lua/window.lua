-- Twin of algorithm/fixed_window.go, for all algorithms that count in windows that
-- follow each other.

local function fixedClear(s)
  s.count, s.finish, s.code = 0, 0, 0
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

-- fixedKept says, by code, how long a window in the caller's own zone is kept
-- after its end.
local fixedKept = {
  [7] = 60000000, [8] = 3600000000, [9] = 86400000000,
  [10] = 172800000000, [11] = 172800000000, [12] = 172800000000,
}

-- ownEnd returns the end of a new window in the caller's own zone; see
-- algorithm/own_zone.go. What came with the request is the start of the present
-- window, its end, and the next two ends.
local function ownEnd(r, s)
  local finish = r.second
  if s.code ~= r.unit or s.finish == r.first then return finish end
  local earliest = s.finish + r.kept
  if finish < earliest then finish = r.third end
  if finish < earliest then finish = r.fourth end
  return finish
end

-- ownReset returns when the whole limit and no credit will be available again.
local function ownReset(s, now, credit)
  local at = now
  if s.count > 0 then at = max(at, s.finish) end
  if credit > 0 then at = max(at, s.till) end
  return min(at, maxInteger)
end

local function fixedWindow(r, s, now)
  local running = (s.count > 0 or r.kept) and now < s.finish
  if running and s.code == fixedCode(r) then return s.count, s.finish end
  local finish
  if r.flag == 1 then
    finish = now + r.period
  elseif r.kept then
    finish = ownEnd(r, s)
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
  return true
end

-- fixedFits is also when what was drawn ends.
local function fixedFits(r, s)
  return s.finish
end

local function fixedFresh(r, s, now)
  if r.kept then
    if s.finish == 0 then return now end
    return s.finish + (fixedKept[s.code] or 0)
  end
  if s.count == 0 then return now end
  return s.finish
end

-- fixedBegins returns a time that is not after the window's first request, and its length, for a
-- calendar the longest; see WindowLength in algorithm/settle.go.
local function fixedBegins(_, s)
  local length, hour = s.code, 3600000000
  if length <= 12 then
    local unit = length > 6 and length - 6 or length
    local more = length > 6 and 48 or 0
    length = (({1, 1, 25, 169, 745, 8784})[unit] or 0) * hour + more * hour
  end
  return s.finish - length, length
end

local function fixedRule(r, a, b, c, d, e, f)
  r.limit, r.most, r.period = a, a, b
  r.first, r.second, r.third, r.fourth = c, d, e, f
  r.kept = fixedKept[r.unit]
end
