-- Executes the checks of one call: check i is on KEYS[i] and says in ARGV[i]
-- what to do, packed by command.go. One more argument, 'all', asks for all or
-- nothing. The answer is seven integers a check: outcome, remaining, granted,
-- retry (-1: never), reset, delay, and until when what was taken counts (0:
-- nothing was taken). If the caller gave the time, one more says when the state
-- is fresh; where the algorithm has leases, one more is the name of the lease
-- that was given, or 0. A check with a share is followed by one on the time of its
-- owner, which it executes and which has no answer: see fair.lua.

local count = #KEYS
local all = #ARGV > count
-- A state written at a time that the caller gave is kept this long, in ms: its
-- own end is not on this clock.
local callerTTL = 3600000

local states, order, paired, serverTime = {}, {}, {}, nil

local function readClock()
  if not serverTime then
    local t = redis.call('TIME')
    serverTime = t[1] * 1000000 + t[2]
  end
  return serverTime
end

-- load returns the state of a key, or nil if it is none of ours.
local function load(a, key)
  local s = {credit = 0, till = 0}
  if a.load then return a.load(s, key) end
  local v = redis.call('GET', key)
  if not v then
    a.clear(s)
    return s
  end
  if string.byte(v) == 43 then -- '+': credit comes first
    s.credit, s.till = unpackBytes('>I6I7', v, 2)
    v = string.sub(v, 15)
  end
  if not a.decode(s, v, key) then return nil end
  return s
end

-- save writes the state of a key, which ends at a time (PXAT) on the server's
-- clock, or after one (PX). Not always after one: the server reckons that from
-- its clock as it is now or was when the script began, and if it was set since
-- or until TIME, the key would end before its state is fresh.
local function save(a, key, s, how, ends)
  if a.save then return a.save(key, s, how, ends) end
  local v = a.encode(s, how == 'PXAT' and s.credit == 0)
  if s.credit > 0 then v = '+' .. pack('>I6I7', s.credit, s.till) .. v end
  redis.call('SET', key, v, how, ends)
end

-- settle is the twin of Settle in algorithm/settle.go: it moves a state that this
-- server wrote while its clock was wrong.
local function settle(a, r, s, now)
  local begins, wait = a.begins(r, s)
  local by = begins - now
  if by <= max(wait, 60000000) then return false end
  if a.settle then
    a.settle(r, s, now)
  else
    local n = r.limit - a.available(r, s, now)
    a.clear(s)
    if n > 0 then a.add(r, s, now, n) end
  end
  if s.till > begins then s.till = s.till - by end
  return true
end

-- run executes check i, as kind and with cost if given, on the states of this call.
local function run(i, as, cost)
  local key = KEYS[i]
  local alg, kind, flag, unit, given, n, duration, p1, p2, p3, p4, p5, p6 =
    unpackBytes(checkFormat, ARGV[i])
  local a = algorithms[alg]
  local now = given
  if given == 0 then now = readClock() else now = given - 1 end
  now = min(now, maxTime)
  local r = {flag = flag % 128, denied = flag >= 128, unit = unit, kind = kind}
  a.rule(r, p1, p2, p3, p4, p5, p6)
  if unit > 0 and (now < p3 or now >= (unit > 6 and p4 or p6)) then return nil, now end
  if a.newest and p3 > 0 and now > p3 then return nil, now end -- nobody waits for the lease any more
  local state = states[key]
  if not state then
    local s = load(a, key)
    if not s then return nil, -1 end
    state = {a = a, s = s, now = now}
    states[key] = state
    order[#order + 1] = key
  end
  if as and kind ~= TAKE and kind ~= PEEK then duration = 0 end
  if cost then n, duration = cost, 0 end
  kind = as or kind
  local moved = given == 0 and kind ~= RESET and settle(a, r, state.s, now)
  local res
  if kind == RESET then
    local s = state.s
    state.gone, state.wrote = true, false
    s.credit, s.till = 0, 0
    a.clear(s)
    res = done(a, r, s, now, 0, false)
  else
    if a.shared and r.flag == 1 then
      paired[i + 1] = true
      res = a.shared(a, r, state.s, now, kind, n, duration, ARGV[i + 1], function(as, cost)
        local paid = run(i + 1, as, cost)
        return paid, paid and states[KEYS[i + 1]].s
      end)
      if not res then return nil, -1 end
    else
      res = (a.step or step)(a, r, state.s, now, kind, n, duration)
    end
    state.wrote = state.wrote or res.wrote or moved
    res.denied = res.wrote and not res.allowed and kind == TAKE
  end
  state.how, state.ends = 'PX', callerTTL
  if given == 0 then
    state.how, state.ends = 'PXAT', ceilDiv(serverTime + max(res.fresh - now, 1), 1000)
  end
  res.dated, res.moved = given ~= 0, moved
  if a.newest then res.lease = res.lease or 0 end
  return res
end

local results, refused = {}, false
for i = 1, count do
  if not paired[i] then
    local res, at = run(i)
    if not res then
      if at < 0 then return redis.error_reply('HEADGATE the state of a key is not one of Headgate\'s') end
      return {-1, at}
    end
    results[i] = res
    refused = refused or not res.allowed
  end
end

if all and refused then
  -- Nothing has been written yet: forget it, ask the others as PEEK, and count the
  -- refusals that count. A state that was moved in time stays so.
  states, order = {}, {}
  for i = 1, count do
    local res = results[i]
    if res and res.allowed then
      results[i] = run(i, PEEK)
    elseif res and res.moved then
      run(i, PEEK)
    end
  end
  for i = 1, count do
    if results[i] and results[i].denied then run(i) end
  end
end

for i = 1, #order do
  local key = order[i]
  local state = states[key]
  if state.gone then redis.call('DEL', key) end
  if state.wrote then save(state.a, key, state.s, state.how, state.ends) end
end

local out, at = {}, 0
for i = 1, count do
  local res = results[i]
  if res then
    local retry = res.retry
    if retry == never then retry = -1 end
    local outcome = res.reason * 2
    if res.allowed then outcome = outcome + 1 end
    out[at + 1], out[at + 2], out[at + 3] = outcome, res.remaining, res.granted
    out[at + 4], out[at + 5], out[at + 6] = retry, res.reset, res.delay
    out[at + 7] = res.counts
    at = at + 7
    if res.dated then
      out[at + 1] = res.fresh
      at = at + 1
    end
    if res.lease then
      out[at + 1] = res.lease
      at = at + 1
    end
  end
end
return out
