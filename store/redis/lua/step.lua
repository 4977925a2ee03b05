-- Twin of algorithm/step.go and algorithm/dispatch.go: one step for all
-- algorithms, credit included. a is the algorithm's functions.

local checkFormat = '>BBBBI8I8I8I8I8I8I8I8I8' -- of command.go
local TAKE, TAKE_UP_TO, PEEK, CHARGE, REFUND, GRANT, RESET, RESERVE = 0, 1, 2, 3, 4, 5, 6, 7
-- Of these the duration is the name of a lease.
local RELEASE, RENEW = 8, 9
local DRAW = 10
-- Of TAKE and PEEK the duration is how many tokens must be left.
-- UNDO is a REFUND whose duration is when the take no longer counts: a time, on
-- the clock that the take was made on.
local UNDO = 11
local OK, LIMITED, TOO_LARGE, EXPIRED, HEADROOM = 0, 1, 2, 10, 11

local function creditAt(s, now)
  if s.till > now then return s.credit end
  return 0
end

local function limitFreshAt(a, r, s, now)
  return min(max(a.fresh(r, s, now), now), maxInteger)
end

local function freshAt(a, r, s, now)
  local at = limitFreshAt(a, r, s, now)
  if creditAt(s, now) > 0 then at = min(max(at, s.till), maxInteger) end
  return at
end

local function turn(a, r, s, now)
  if a.turn then return a.turn(r, s, now) end
  return 0
end

local function fits(a, r, s, now, n)
  if a.available(r, s, now) >= n then return now end
  return a.fits(r, s, now, n)
end

-- split returns how much of n the limit itself covers; nil if limit and credit
-- together do not cover it all.
local function split(r, n, free, credit)
  if n <= free and (r.limit > 0 or credit > 0) then return n end
  free = max(free, 0)
  if credit == 0 or n - free > credit then return nil end
  return min(n, free)
end

-- leased puts into res the name of the lease that was added last, if any was.
local function leased(a, s, res, n)
  if a.newest and n > 0 then res.lease = a.newest(s) end
end

local function spend(a, r, s, now, regular, extra)
  if s.till <= now then s.credit, s.till = 0, 0 end
  s.credit = s.credit - extra
  if s.credit == 0 then s.till = 0 end
  if regular > 0 then a.add(r, s, now, regular) end
end

local function remaining(a, r, s, now)
  if a.remaining then return a.remaining(r, s, now) end
  return max(a.available(r, s, now), 0)
end

local function done(a, r, s, now, granted, wrote)
  local fresh = freshAt(a, r, s, now)
  local reset = r.kept and a.reset(s, now, creditAt(s, now)) or fresh
  return {
    allowed = true, reason = OK, granted = granted, retry = 0, delay = 0,
    remaining = remaining(a, r, s, now) + creditAt(s, now),
    reset = reset - now, fresh = fresh, wrote = wrote, counts = 0,
  }
end

-- took is done for a request that has taken granted. counts is when that no
-- longer counts: when the limit is reset, apart from credit that is left, which
-- a refund does not return.
local function took(a, r, s, now, granted)
  local res = done(a, r, s, now, granted, true)
  res.counts = now + res.reset
  if creditAt(s, now) > 0 then
    res.counts = r.kept and a.reset(s, now, 0) or limitFreshAt(a, r, s, now)
  end
  return res
end

local function fitsWithCredit(a, r, s, now, n)
  local credit = creditAt(s, now)
  if credit > 0 and n - credit <= r.most then
    if n <= credit then return now end
    local at = fits(a, r, s, now, n - credit)
    if at < s.till then return at end
  end
  if n > r.most or r.limit == 0 then return never end
  return fits(a, r, s, now, n)
end

local function refuse(a, r, s, now, n)
  local res = done(a, r, s, now, 0, false)
  res.allowed, res.reason = false, LIMITED
  local at = fitsWithCredit(a, r, s, now, n)
  if at == never then
    res.reason, res.retry = TOO_LARGE, never
  else
    res.retry = at - now
  end
  return res
end

-- shorten is the twin of algorithm/shorten.go.
local function shorten(a, r, s, now, n)
  if not a.reshaped or not a.reshaped(r, s) then return false end
  local moved = {}
  for k, v in pairs(s) do moved[k] = v end
  a.add(r, moved, now, 0)
  if fitsWithCredit(a, r, moved, now, n) >= fitsWithCredit(a, r, s, now, n) then return false end
  for k, v in pairs(moved) do s[k] = v end
  return true
end

-- take answers TAKE and PEEK.
local function take(a, r, s, now, kind, n)
  local free, credit = max(a.available(r, s, now), -1), creditAt(s, now)
  local regular = split(r, n, free, credit)
  if not regular then
    local counts = r.denied and r.limit > 0 and kind == TAKE and n > 0
    if counts then
      a.add(r, s, now, min(n, r.limit))
      if a.forget then a.forget(r, s) end
    end
    local shortens = not counts and kind == TAKE and n > 0 and n <= r.limit and shorten(a, r, s, now, n)
    local res = refuse(a, r, s, now, n)
    res.wrote = counts or shortens
    return res
  end
  if n == 0 or kind == PEEK then return done(a, r, s, now, 0, false) end
  local delay = turn(a, r, s, now)
  spend(a, r, s, now, regular, n - regular)
  local res = took(a, r, s, now, n)
  res.delay = delay
  leased(a, s, res, regular)
  return res
end

-- others answers the kinds that are rarer. Their functions are in here because
-- every call has to define what it does not skip.
local function others(a, r, s, now, kind, n, duration)
  local function takeUpTo(a, r, s, now, n)
    local free, credit = max(a.available(r, s, now), 0), creditAt(s, now)
    local granted = min(n, free + credit)
    if granted == 0 then return take(a, r, s, now, TAKE, min(n, 1)) end
    local delay = turn(a, r, s, now)
    local regular = min(granted, free)
    spend(a, r, s, now, regular, granted - regular)
    local res = took(a, r, s, now, granted)
    res.delay = delay
    leased(a, s, res, regular)
    return res
  end

  -- refuseBooking is refuse for a request whose turn comes late too late.
  local function refuseBooking(a, r, s, now, n, late)
    local res = refuse(a, r, s, now, n)
    if res.reason == TOO_LARGE then return res end
    if a.turn then
      local credit, till = s.credit, s.till
      if creditAt(s, now) > 0 and now + late >= till then
        s.credit, s.till = 0, 0
        local alone = refuse(a, r, s, now, n)
        s.credit, s.till = credit, till
        res.reason, res.retry = alone.reason, alone.retry
      end
      res.retry = max(res.retry, late)
    elseif late > 0 then
      res.retry = min(res.retry, late)
    end
    return res
  end

  -- reserve takes now or books what a bucket will have refilled in wait.
  local function reserve(a, r, s, now, n, wait)
    if not a.used or n == 0 then return take(a, r, s, now, TAKE, n) end
    local free, credit = max(a.available(r, s, now), -1), creditAt(s, now)
    local regular = split(r, n, free, credit)
    local ok = regular ~= nil
    local delay = turn(a, r, s, now)
    local late = delay - wait
    if not ok and not a.turn and n <= r.most then
      delay = a.fits(r, s, now, n) - now
      regular, ok, late = n, true, delay - wait
      local used, last = a.used(r, s, now)
      local room = maxInteger - used
      if n * r.token > room then
        late = max(late, a.drained(r, last, n * r.token - room) - now)
      end
    end
    if not ok or late > 0 then return refuseBooking(a, r, s, now, n, late) end
    spend(a, r, s, now, regular, n - regular)
    if not a.turn and delay > 0 then s.booked = max(s.booked, 1) end
    local res = took(a, r, s, now, n)
    res.delay = delay
    return res
  end

  -- charge takes n, first from the limit, then from the credit, the rest as debt.
  local function charge(a, r, s, now, n)
    local free, credit = max(a.available(r, s, now), 0), creditAt(s, now)
    local extra = min(max(n - free, 0), credit)
    local regular = n - extra
    if r.limit == 0 then regular = 0 end
    local res
    if regular > 0 or extra > 0 then
      spend(a, r, s, now, regular, extra)
      res = took(a, r, s, now, n)
    else
      res = done(a, r, s, now, n, false)
    end
    leased(a, s, res, regular)
    local beyond = r.limit == 0 and (n > extra or n == 0 and credit == 0)
    if a.available(r, s, now) < 0 or beyond then
      res.allowed, res.reason = false, LIMITED
      if r.limit == 0 then
        res.retry, res.reason = never, TOO_LARGE
      else
        res.retry = fits(a, r, s, now, 0) - now
      end
    end
    return res
  end

  -- lease answers RELEASE and RENEW of the lease of that name.
  local function lease(a, r, s, now, kind, n, name)
    local held = a.held and a.held(r, s, now, n, name) or 0
    if kind == RENEW and held == 0 then
      local res = done(a, r, s, now, 0, false)
      res.allowed, res.reason, res.retry = false, EXPIRED, never
      return res
    end
    if held == 0 or n == 0 then return done(a, r, s, now, 0, false) end
    a.release(r, s, now, name, held)
    if kind == RELEASE then
      if a.fresh(r, s, now) <= now then a.clear(s) end
      return done(a, r, s, now, held, true)
    end
    a.renew(s, now, held)
    local res = done(a, r, s, now, held, true)
    leased(a, s, res, held)
    return res
  end

  -- draw is the twin of algorithm/draw.go.
  local function draw(a, r, s, now, n, age)
    if not a.drawEnd or r.denied or r.limit == 0 then
      local res = done(a, r, s, now, 0, false)
      res.allowed, res.reason, res.retry = false, TOO_LARGE, never
      return res
    end
    if n == 0 then return take(a, r, s, now, TAKE, 0) end
    local free = max(a.available(r, s, now), 0)
    local granted = min(n, max(floor(free / 4), min(free, 1)))
    if granted == 0 then
      local res = done(a, r, s, now, 0, false)
      res.allowed, res.reason, res.retry = false, LIMITED, fits(a, r, s, now, 1) - now
      return res
    end
    if s.till <= now then s.credit, s.till = 0, 0 end
    local till = min(now + min(age, maxTime), maxTime)
    a.add(r, s, now, granted, till)
    local res = took(a, r, s, now, granted)
    res.delay = min(till, a.drawEnd(r, s)) - now
    return res
  end

  local function grant(a, r, s, now, n, lasting)
    if n == 0 or lasting <= 0 then return done(a, r, s, now, 0, false) end
    if s.till <= now then s.credit, s.till = 0, 0 end
    s.credit = min(s.credit + min(n, maxCount), maxCount)
    s.till = max(s.till, min(now + min(lasting, maxTime), maxInteger))
    return done(a, r, s, now, n, true)
  end

  -- takeLeaving is the twin of algorithm/headroom.go.
  local function takeLeaving(a, r, s, now, kind, n, leave)
    local most = r.most - leave

    local function beyond(free)
      if a.kept then return min(free - a.kept(r, s, now, leave), most) end
      return free - leave
    end

    local function leaving(res)
      local credit = creditAt(s, now)
      local left = res.remaining - credit
      if a.turn then
        left = min(left, a.available(r, s, now) - leave)
      else
        left = beyond(left)
      end
      res.remaining = max(left, 0) + credit
      return res
    end

    local function fitsLeaving(n)
      if not a.kept then return fits(a, r, s, now, n + leave) end
      if a.available(r, s, now) - a.kept(r, s, now, leave) >= n then return now end
      return a.keeps(r, s, n, leave)
    end

    local function refuseLeaving()
      local res = leaving(done(a, r, s, now, 0, false))
      res.allowed, res.reason = false, LIMITED
      local credit = creditAt(s, now)
      if credit > 0 and n - credit <= most then
        local at = fitsLeaving(max(n - credit, 0))
        if at < s.till then
          res.retry = at - now
          return res
        end
      end
      if n > most or r.limit == 0 then
        res.reason, res.retry = TOO_LARGE, never
      else
        res.retry = fitsLeaving(n) - now
      end
      return res
    end

    local free, credit = a.available(r, s, now), creditAt(s, now)
    local regular = split(r, n, max(beyond(free), -1), credit)
    if not regular then
      local res = refuseLeaving()
      if res.reason == LIMITED and split(r, n, max(free, -1), credit) then res.reason = HEADROOM end
      return res
    end
    if n == 0 or kind == PEEK then return leaving(done(a, r, s, now, 0, false)) end
    local delay = turn(a, r, s, now)
    spend(a, r, s, now, regular, n - regular)
    local res = leaving(took(a, r, s, now, n))
    res.delay = delay
    leased(a, s, res, regular)
    return res
  end

  if kind == TAKE or kind == PEEK then return takeLeaving(a, r, s, now, kind, n, duration) end
  if kind == TAKE_UP_TO then return takeUpTo(a, r, s, now, n) end
  if kind == RESERVE then return reserve(a, r, s, now, n, duration) end
  if kind == CHARGE then return charge(a, r, s, now, n) end
  if kind == UNDO then
    duration = duration - now
    if duration <= 0 then n = 0 end
  end
  if kind == REFUND or kind == UNDO then
    local wrote = n > 0 and a.sub(r, s, now, n, duration)
    -- What has been given back whole becomes the state of an unused key.
    if wrote and a.fresh(r, s, now) <= now then a.clear(s) end
    return done(a, r, s, now, 0, wrote)
  end
  if kind == RELEASE or kind == RENEW then return lease(a, r, s, now, kind, n, duration) end
  if kind == GRANT then return grant(a, r, s, now, n, duration) end
  if kind == DRAW then return draw(a, r, s, now, n, duration) end
  return refuse(a, r, s, now, n)
end

-- step answers one request; RESET is done by its caller.
local function step(a, r, s, now, kind, n, duration)
  if duration == 0 and (kind == TAKE or kind == PEEK) then return take(a, r, s, now, kind, n) end
  return others(a, r, s, now, kind, n, duration)
end
