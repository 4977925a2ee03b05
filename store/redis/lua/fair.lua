-- Twin of algorithm/fair.go: a check on a bucket that is shared, and the next one on
-- the time of its owner. The cost of that is what a token costs while the bucket is
-- full, and its duration how often that doubles until it is empty.

local SHARE = 12

algorithms[0].shared = function(a, r, s, now, kind, n, duration, owner, pay)
  local _, _, _, _, _, token, doublings, _, time = unpackBytes(checkFormat, owner)
  local most = floor(time / 2)

  local function priceOf(n)
    if n == 0 then return 0 end
    if r.most == 0 or n > floor(time * 128 / token) then return most end
    local free = min(max(a.available(r, s, now), 0), r.most)
    local at = floor((r.most - free) * (doublings * 128) / r.most)
    local doubled = floor(at / 128)
    local price = floor(floor(n * token / 128) * (128 + at - doubled * 128) / 128)
    if price > floor(most / 2 ^ doubled) then return most end
    return max(price * 2 ^ doubled, 1)
  end

  local price = priceOf(n)
  local res, paid
  if kind == CHARGE then
    res = step(a, r, s, now, kind, n, duration)
    paid = pay(kind, price)
  elseif kind == REFUND or kind == UNDO then
    res = step(a, r, s, now, kind, n, duration)
    paid = pay(REFUND, priceOf(n))
  else
    paid = pay(PEEK, price)
    if paid and paid.allowed then
      res = step(a, r, s, now, kind, n, duration)
      if res.wrote then paid = pay(TAKE, price) end
    elseif paid then
      res = step(a, r, s, now, PEEK, n, duration)
      res.allowed = false
      if res.reason ~= TOO_LARGE then res.reason, res.retry = SHARE, max(res.retry, paid.retry) end
    end
  end
  if not paid then return nil end
  res.remaining = min(res.remaining, floor(paid.remaining / priceOf(1)))
  return res
end
