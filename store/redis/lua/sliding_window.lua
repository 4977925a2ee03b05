-- Twin of algorithm/sliding_window.go. How the state is written is said in
-- sliding_window_take.lua, which comes before.

local function slidingClear(s)
  s.current, s.start, s.period, s.previous = 0, 0, 0, 0
end

local function slidingUsed(current, previous, overlap, w)
  if previous == 0 then return current end
  return mulDiv(previous, overlap, w) + current
end

-- slidingAt returns current, previous, start and overlap at now in windows of w.
local function slidingAt(s, now, w)
  if s.period ~= w then
    local start = floor(now / w) * w
    local current = 0
    if s.period ~= 0 then
      local old = s.period
      local c, p, _, o = slidingAt(s, now, old)
      current = min(slidingUsed(c, p, o, old), maxCount)
    end
    return current, 0, start, 0
  end
  local current, previous, start = s.current, s.previous, s.start
  now = max(now, start)
  local since = now - start
  if since >= 2 * w then
    current, previous = 0, 0
    start = start + floor(since / w) * w
  elseif since >= w then
    previous, current = current, 0
    start = start + w
  end
  return current, previous, start, w - (now - start)
end

local function slidingPeriod(r, s)
  if s.period ~= 0 then return s.period end
  return r.period
end

local function slidingAvailable(r, s, now)
  local w = r.period
  local current, previous, _, overlap = slidingAt(s, now, w)
  return r.limit - slidingUsed(current, previous, overlap, w)
end

local function slidingAdd(r, s, now, n)
  local current, previous, start = slidingAt(s, now, r.period)
  s.current = min(current + min(n, maxCount), maxCount)
  s.start, s.period, s.previous = start, r.period, previous
end

-- slidingTookCurrent reports whether a take that counts until so long after the
-- end of the window is one of this window. previously is what the previous one adds.
local function slidingTookCurrent(r, previously, after)
  if after > 1 and after <= min(maxLate, floor(r.period / 8)) then return previously == 0 end
  return after > 0
end

local function slidingSub(r, s, now, n, left)
  local current, previous, start, overlap = slidingAt(s, now, r.period)
  local previously = slidingUsed(0, previous, overlap, r.period)
  if previously + current == 0 then return false end
  local fromCurrent = 0
  if left == 0 or slidingTookCurrent(r, previously, now + left - start - r.period) then
    fromCurrent = min(n, current)
  end
  local fromPrevious = min(n - fromCurrent, previous)
  if fromCurrent + fromPrevious == 0 then return false end
  s.current, s.previous = current - fromCurrent, previous - fromPrevious
  s.start, s.period = start, r.period
  return true
end

local function slidingFits(r, s, now, n)
  local w = slidingPeriod(r, s)
  local current, previous, start = slidingAt(s, now, w)
  local spare = r.limit - n - current
  if spare >= 0 then return start + w - overlapFor(previous, spare, w) end
  return start + 2 * w - overlapFor(current, r.limit - n, w)
end

local function slidingFresh(r, s, now)
  local w = slidingPeriod(r, s)
  local current, previous, start = slidingAt(s, now, w)
  if current > 0 then return start + 2 * w - floor((w - 1) / current) end
  if previous > 0 then return start + w - floor((w - 1) / previous) end
  return now
end

local function slidingRule(r, a, b)
  r.limit, r.most, r.period = a, a, b
end

local function slidingDrawEnd(r, s)
  return s.start + r.period
end

algorithms[4] = {
  rule = slidingRule, clear = slidingClear, decode = slidingDecode, encode = slidingEncode,
  reshaped = function(r, s) return s.period ~= 0 and s.period ~= r.period end,
  available = slidingAvailable, add = slidingAdd, sub = slidingSub,
  fits = slidingFits, fresh = slidingFresh, drawEnd = slidingDrawEnd,
  begins = function(_, s) return s.start, s.period end,
}
