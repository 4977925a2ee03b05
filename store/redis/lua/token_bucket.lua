-- Twin of algorithm/token_bucket.go and algorithm/leaky_bucket.go.
--
-- State: used, last, token, as three integers of seven bytes, and a fourth, booked,
-- unless it is 0.

local bucketFormat = '>I7I7I7'

local function bucketClear(s)
  s.used, s.last, s.token, s.booked = 0, 0, 0, 0
end

local function bucketDecode(s, body)
  if #body ~= 21 and #body ~= 28 then return false end
  s.used, s.last, s.token = unpackBytes(bucketFormat, body)
  s.booked = #body == 28 and unpackBytes('>I7', body, 22) or 0
  return true
end

local function bucketEncode(s)
  local body = pack(bucketFormat, s.used, s.last, s.token)
  if s.booked > 0 then body = body .. pack('>I7', s.booked) end
  return body
end

local function bucketRescaled(used, from, to)
  if from == 0 then return used end
  local tokens = ceilDiv(used, from)
  if tokens > floor(maxInteger / to) then return maxInteger end
  return tokens * to
end

local function bucketUsed(r, s, now)
  local used, last = s.used, s.last
  if used == 0 then return 0, max(now, last) end
  if s.token ~= r.token then used = bucketRescaled(used, s.token, r.token) end
  if now <= last then return used, last end
  local elapsed = now - last
  if r.tick ~= 1 then elapsed = floor(now / r.tick) - floor(last / r.tick) end
  local leaked = elapsed * r.leak
  if leaked >= used then return 0, now end
  return used - leaked, now
end

local function bucketDrained(r, last, used)
  if used == 0 then return last end
  if r.leak == 0 then return maxInteger end
  local ticks = ceilDiv(used, r.leak)
  if r.tick == 1 then return min(last + ticks, maxInteger) end
  if ticks > floor(maxInteger / r.tick) then return maxInteger end
  return min((floor(last / r.tick) + ticks) * r.tick, maxInteger)
end

local function bucketAvailable(r, s, now)
  local used = bucketUsed(r, s, now)
  local free = r.capacity - used
  if free < 0 then return -1 end
  if r.late and used > r.late then return 0 end
  return floor(free / r.token)
end

local bucketAdd, bucketSub
do -- a script has at most 200 locals
  local function gross(r, s, now)
    if s.booked == 0 or bucketUsed(r, s, now) == 0 then return 0 end
    local all = {used = min(s.used + s.booked - 1, maxInteger), last = s.last, token = s.token}
    local units = bucketUsed(r, all, now)
    return units > r.capacity and units or 0
  end

  local function booked(all, extra)
    return all > 0 and min(1 + max(extra, 0), maxInteger) or 0
  end

  bucketAdd = function(r, s, now, n)
    local used, last = bucketUsed(r, s, now)
    if s.booked > 0 then
      local all = gross(r, s, now)
      s.booked = booked(all, all - used)
    end
    if n > floor((maxInteger - used) / r.token) then
      used = maxInteger
    else
      used = used + n * r.token
    end
    s.used, s.last, s.token = used, last, r.token
  end

  bucketSub = function(r, s, now, n, left)
    local function leaks(from)
      return min(max(floor((now + left) / r.tick) - floor(from / r.tick), 0) * r.leak, maxInteger)
    end

    -- keptFor returns how much of a take must be kept because of what was booked later.
    local function keptFor(used, all, ahead)
      if r.late then
        if used <= r.free + r.token or used <= ahead then return 0 end
        return maxInteger
      end
      local later = all - ahead
      if later <= 0 then return 0 end
      if r.token >= r.leak then return min(ceilDiv(later, r.token) * r.token, maxInteger) end
      return min(later + r.leak - 1, maxInteger)
    end

    local used, last = bucketUsed(r, s, now)
    if used == 0 then return false end
    local all = gross(r, s, now)
    local units, ahead = used, max(used, all)
    if n <= floor(used / r.token) then units = n * r.token end
    if left > 0 then units, ahead = min(units, leaks(now)), leaks(last) end
    local kept = keptFor(used, all, ahead)
    if kept > 0 then units = min(units, min(n, floor(maxInteger / r.token)) * r.token - kept) end
    if units <= 0 then return false end
    local extra = all - used
    if all > 0 and kept > 0 then
      extra = extra + units
    elseif all > 0 then
      all = all - units
    end
    s.used, s.last, s.token, s.booked = used - units, last, r.token, booked(all, extra)
    return true
  end
end

local function bucketFits(r, s, now, n)
  local used, last = bucketUsed(r, s, now)
  local over = max(used - (r.capacity - n * r.token), 0)
  if r.late and n > 0 then over = max(over, used - r.late) end
  return bucketDrained(r, last, over)
end

local function bucketFresh(r, s, now)
  local used, last = bucketUsed(r, s, now)
  if used == 0 then return now end
  return bucketDrained(r, last, used)
end

local function leakyTurn(r, s, now)
  local used, last = bucketUsed(r, s, now)
  if used <= r.free then return 0 end
  return bucketDrained(r, last, used - r.free) - now
end

local function leakyRemaining(r, s, now)
  local used = bucketUsed(r, s, now)
  if used > r.late then return 0 end
  return min(floor(max(r.capacity - used, 0) / r.token), floor((r.late - used) / r.token) + 1)
end

local function bucketRule(r, a, b, c, d, e, f)
  r.limit, r.most, r.token, r.leak, r.capacity, r.tick = a, b, c, d, e, f
end

-- A leaky bucket's limit is only ever compared with 0, as its leak can be, and
-- its capacity follows from the others: their places hold late and free.
local function leakyRule(r, a, b, c, d, e, f)
  bucketRule(r, d, b, c, d, b * c, f)
  r.late, r.free = a, e
end

local function bucketDrawEnd()
  return maxInteger
end

for id = 0, 1 do
  algorithms[id] = {
    rule = id == 1 and leakyRule or bucketRule, clear = bucketClear, decode = bucketDecode, encode = bucketEncode,
    available = bucketAvailable, add = bucketAdd, sub = bucketSub,
    fits = bucketFits, fresh = bucketFresh, turn = id == 1 and leakyTurn,
    remaining = id == 1 and leakyRemaining,
    begins = function(r, s) return s.last, bucketDrained(r, 0, r.capacity) end,
    settle = function(_, s, now) s.last = now end,
    used = bucketUsed, drained = bucketDrained, drawEnd = id == 0 and bucketDrawEnd,
  }
end
