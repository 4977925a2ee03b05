-- Twin of algorithm/token_bucket.go and algorithm/leaky_bucket.go.
--
-- State: used, last, token, as three integers of seven bytes.

local bucketFormat = '>I7I7I7'

local function bucketClear(s)
  s.used, s.last, s.token = 0, 0, 0
end

local function bucketDecode(s, body)
  if #body ~= 21 then return false end
  s.used, s.last, s.token = unpackBytes(bucketFormat, body)
  return true
end

local function bucketEncode(s)
  return pack(bucketFormat, s.used, s.last, s.token)
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

local function bucketAdd(r, s, now, n)
  local used, last = bucketUsed(r, s, now)
  if n > floor((maxInteger - used) / r.token) then
    used = maxInteger
  else
    used = used + n * r.token
  end
  s.used, s.last, s.token = used, last, r.token
end

local function bucketSub(r, s, now, n, left)
  local used, last = bucketUsed(r, s, now)
  if used == 0 then return false end
  local units = used
  if n <= floor(used / r.token) then units = n * r.token end
  if left > 0 then
    local most = (floor((now + left) / r.tick) - floor(now / r.tick)) * r.leak
    if most < units then units = most end
  end
  if units == 0 then return false end
  s.used, s.last, s.token = used - units, last, r.token
  return true
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
    used = bucketUsed, drained = bucketDrained, drawEnd = id == 0 and bucketDrawEnd,
  }
end
