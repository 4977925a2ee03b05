-- Twin of algorithm/sliding_buckets.go.
--
-- State: newest, width, period, the number of counters, a byte, the sum of the
-- counters, and the counters as a ring. The byte is 3 for two bytes a counter,
-- and 7 for six once one of them needs it. (Before there was a sum it was 2 or
-- 6, and such states are still read.)

local ringFormat = '>I7I6I6I2B'
local ringHeader = 22
local ringSumFormat = 'I7'

local function ringClear(s)
  s.newest, s.width, s.period, s.size, s.words = 0, 0, 0, 0, {}
end

local function ringDecode(s, body)
  if #body < ringHeader then return false end
  local size, bytes
  local header = ringHeader
  s.newest, s.width, s.period, size, bytes = unpackBytes(ringFormat, body)
  if bytes % 2 == 1 then header, bytes = header + 7, bytes - 1 end
  if #body ~= header + size * bytes then return false end
  s.size = size
  s.words = {unpackBytes('>' .. string.rep('I' .. bytes, size), body, header + 1)}
  return true
end

local function ringEncode(s)
  local bytes, sum = 2, 0
  for i = 1, s.size do
    local count = s.words[i]
    sum = sum + count
    if count > 65535 then bytes = 6 end
  end
  return pack(ringFormat .. ringSumFormat, s.newest, s.width, s.period, s.size, bytes + 1, sum)
    .. pack('>' .. string.rep('I' .. bytes, s.size), unpack(s.words, 1, s.size))
end

-- spanAt returns oldest and overlap.
local function spanAt(period, width, now)
  local from = now - period
  local oldest = floor(from / width)
  return oldest, (oldest + 1) * width - from
end

local function ringCount(s, j)
  local n = s.size
  if j > s.newest - n and j <= s.newest and j >= 0 then return s.words[j % n + 1] end
  return 0
end

local function ringEdge(edge, count, overlap, width)
  if overlap == width or edge == 2 then return count end
  if edge == 1 then return 0 end
  return mulDiv(count, overlap, width)
end

local function ringSum(s, from)
  local n, words, total = s.size, s.words, 0
  from = max(from, s.newest - n + 1, 0)
  local i = from % n
  for _ = from, s.newest do
    total = total + words[i + 1]
    i = i + 1
    if i == n then i = 0 end
  end
  return total
end

local function ringUsed(edge, s, now)
  local width = s.width
  if width == 0 or s.size == 0 then return 0 end
  local oldest, overlap = spanAt(s.period, width, max(now, s.newest * width))
  return ringEdge(edge, ringCount(s, oldest), overlap, width) + ringSum(s, oldest + 1)
end

local function ringAvailable(r, s, now)
  return r.limit - ringUsed(r.flag, s, now)
end

-- ringReshaped reports whether s has counts of windows of another shape than r's.
local function ringReshaped(r, s)
  return s.period ~= 0 and (s.width ~= r.width or s.period ~= r.period or s.size ~= r.buckets + 1)
end

local function ringShape(r, s, now)
  local width, n = r.width, r.buckets + 1
  local current = floor(now / width)
  if s.period == 0 or ringReshaped(r, s) then
    local used = ringUsed(r.flag, s, now)
    local words = {}
    for i = 1, n do words[i] = 0 end
    words[current % n + 1] = min(used, maxCount)
    s.newest, s.width, s.period, s.size, s.words = current, width, r.period, n, words
    return
  end
  for j = max(s.newest + 1, current - n + 1), current do s.words[j % n + 1] = 0 end
  s.newest = max(s.newest, current)
end

local function ringAdd(r, s, now, n)
  ringShape(r, s, now)
  local i = s.newest % s.size + 1
  s.words[i] = min(s.words[i] + min(n, maxCount), maxCount)
end

-- ringTaken returns the sub-window of the take that counts until then.
local function ringTaken(r, s, till, oldest, overlap)
  local j = floor((till - r.period - 1) / r.width)
  local late = till - r.period - j * r.width
  if r.flag == 1 or late > min(maxLate, floor(r.width / 8)) then return j end
  if r.flag == 0 and late == 1 or j - 1 < oldest then return j end
  local before = ringCount(s, j - 1)
  if j - 1 == oldest then before = ringEdge(r.flag, before, overlap, r.width) end
  if before == 0 then return j end
  return j - 1
end

local function ringSub(r, s, now, n, left)
  if ringUsed(r.flag, s, now) == 0 then return false end
  ringShape(r, s, now)
  local from = s.newest
  local oldest, overlap = spanAt(r.period, r.width, max(now, s.newest * r.width))
  if left > 0 then from = min(from, ringTaken(r, s, now + left, oldest, overlap)) end
  for j = from, max(oldest, 0), -1 do
    if n == 0 then break end
    local i, gone = j % s.size + 1, min(n, ringCount(s, j))
    s.words[i] = s.words[i] - gone
    n = n - gone
  end
  return true
end

local function ringLeaves(edge, s, j, count, spare)
  local width, period = s.width, s.period
  if edge == 1 then return j * width + period + 1 end
  if edge == 2 then return (j + 1) * width + period end
  return (j + 1) * width + period - overlapFor(count, spare, width)
end

local function ringFits(r, s, now, n)
  local oldest = spanAt(s.period, s.width, max(now, s.newest * s.width))
  local first = max(oldest, s.newest - s.size + 1, 0)
  local rest = ringSum(s, first)
  for j = first, s.newest do
    local count = ringCount(s, j)
    rest = rest - count
    local spare = r.limit - n - rest
    if spare >= 0 and count > spare then
      return max(ringLeaves(r.flag, s, j, count, spare), now)
    end
  end
  return now
end

local function ringFresh(r, s, now)
  for j = s.newest, max(s.newest - s.size + 1, 0), -1 do
    local count = ringCount(s, j)
    if count > 0 then
      local at = ringLeaves(r.flag, s, j, count, 0)
      if at <= s.newest * s.width then return now end
      return max(at, now)
    end
  end
  return now
end

local function ringRule(r, a, b, c, d)
  r.limit, r.most, r.period, r.width, r.buckets = a, a, b, c, d
end

local function ringDrawEnd(r, s)
  return (s.newest + 1) * r.width
end

algorithms[5] = {
  rule = ringRule, clear = ringClear, decode = ringDecode, encode = ringEncode,
  reshaped = ringReshaped,
  available = ringAvailable, add = ringAdd, sub = ringSub,
  fits = ringFits, fresh = ringFresh, drawEnd = ringDrawEnd,
  begins = function(_, s) return s.newest * s.width, s.period end,
}
