-- Twin of algorithm/fair.go: a check on a bucket that is shared, and the next one on
-- the time of its owner. The cost of that is what a token costs while the bucket is
-- full, and its duration how often that doubles until it is empty.

local SHARE = 12

-- pay executes the check on the time of the owner, and returns its answer and state.
algorithms[0].shared = function(a, r, s, now, kind, n, duration, owner, pay)
  local _, _, _, _, _, token, doublings, _, time, unit, leak, capacity, tick = unpackBytes(checkFormat, owner)
  local most, deepest = floor(time / 2), doublings * 128

  local function depthOf(free)
    if r.most == 0 then return 0 end
    return floor((r.most - min(max(free, 0), r.most)) * deepest / r.most)
  end

  local function priceAt(depth, n)
    if n == 0 then return 0 end
    if r.most == 0 or n > floor(time * 128 / token) then return most end
    local doubled = floor(depth / 128)
    local price = floor(floor(n * token / 128) * (128 + depth - doubled * 128) / 128)
    if price > floor(most / 2 ^ doubled) then return most end
    return max(price * 2 ^ doubled, 1)
  end

  local function priceOf(n) return priceAt(depthOf(a.available(r, s, now)), n) end

  -- sharesAt returns when the bucket has n and the owner can pay for it.
  local function sharesAt(member, at)
    local t = {token = unit, leak = leak, tick = tick}
    local used, last = a.used(r, s, now)
    local spent, since = a.used(t, member, now)
    local deep, low = depthOf(floor((r.capacity - used) / r.token)), depthOf(a.available(r, s, at))
    while low < deep do
      local depth = floor((low + deep) / 2)
      local free = r.most - floor(((depth + 1) * r.most - 1) / deepest)
      local filled, pays = a.drained(r, last, used - (r.capacity - free * r.token)), now
      local over = spent - (capacity - priceAt(depth, n) * unit)
      if over > 0 then pays = a.drained(t, since, over) end
      at = min(at, max(filled, pays))
      if filled <= pays then deep = depth else low = depth + 1 end
    end
    return fitsWithCredit(a, r, s, at, n)
  end

  local price = priceOf(n)
  local res, paid, member
  if kind == CHARGE then
    res = step(a, r, s, now, kind, n, duration)
    paid = pay(kind, price)
  elseif kind == REFUND or kind == UNDO then
    res = step(a, r, s, now, kind, n, duration)
    paid = pay(REFUND, priceOf(n))
  else
    paid, member = pay(PEEK, price)
    if paid and paid.allowed then
      res = step(a, r, s, now, kind, n, duration)
      if res.wrote then paid = pay(TAKE, price) end
    elseif paid then
      res = step(a, r, s, now, PEEK, n, duration)
      res.allowed = false
      if res.reason ~= TOO_LARGE then
        local at = sharesAt(member, now + paid.retry)
        if at == never then
          res.reason, res.retry = TOO_LARGE, never
        else
          res.reason, res.retry = SHARE, at - now
        end
      end
    end
  end
  if not paid then return nil end
  res.remaining = min(res.remaining, floor(paid.remaining / priceOf(1)))
  return res
end
