-- Twin of algorithm/concurrency.go, on the list of sliding_log.lua: s.newest is
-- here the newest name that was given, whether its lease is held or not.

do -- a script has at most 200 locals
  local function leaseAppend(s, at, n)
    s.total = s.total + n
    s.newestAt = s.length
    local words, length = logWords(at, n)
    s.tail = s.tail .. words
    s.length = s.length + length
  end

  -- leasePut begins the lease named at. The head is that of now.
  local function leasePut(s, at, n)
    if s.head == s.length then
      logCut(s, 0)
      s.head = 0
    end
    s.newest = at
    leaseAppend(s, at, n)
  end

  local function leaseAdd(r, s, now, n)
    s.total, s.head = logAt(r, s, now)
    n = min(n, maxCount - s.total)
    if n == 0 then return end
    if s.length - s.head > 2 * r.limit + 64 then
      local at, count = logEntry(s, s.newestAt)
      logCut(s, s.newestAt)
      s.total = s.total - count
      return leaseAppend(s, at, n + count)
    end
    leasePut(s, max(now, s.newest + 1), n)
  end

  -- leaseNewest returns the name of the lease that was added last.
  local function leaseNewest(s)
    if s.newestAt >= s.length then return 0 end
    local at = logEntry(s, s.newestAt)
    return at
  end

  -- leaseHeld returns how much of the lease that is meant is still held: at most
  -- n, or at least 1 for a dry run.
  local function leaseHeld(r, s, now, n, name)
    local _, i = logAt(r, s, now)
    while i < s.length do
      local at, count, following = logEntry(s, i)
      if at == name then return min(count, max(n, 1)) end
      if at > name then break end
      i = following
    end
    return 0
  end

  -- leaseEnd takes n out of the entry of that time, which holds at least as much.
  local function leaseEnd(r, s, now, name, n)
    s.total, s.head = logAt(r, s, now)
    s.total = s.total - n
    local before, i = s.head, s.head
    while i < s.length do
      local at, count, following = logEntry(s, i)
      if at == name then
        local rest, length, kept = logBytes(s, following, s.length), s.length - following, 0
        logCut(s, i)
        if count > n then
          local words
          words, kept = logWords(at, count - n)
          s.tail = s.tail .. words
          before = i
        end
        if length == 0 then
          s.newestAt = before
        else
          s.newestAt = s.newestAt - (following - i - kept)
        end
        s.tail = s.tail .. rest
        s.length = i + kept + length
        break
      end
      before, i = i, following
    end
    if s.head == s.length then
      logCut(s, 0)
      s.head, s.newestAt = 0, 0
    end
  end

  local function leaseSub(r, s, now, n, left)
    local newest = s.newest
    local changed = logSub(r, s, now, n, left)
    if changed then s.newest = newest end
    return changed
  end

  local function leaseFresh(r, s, now)
    local fresh = now
    if logAt(r, s, now) > 0 then
      local at = logEntry(s, s.newestAt)
      fresh = at + r.period
    end
    if s.newest >= now and s.newest > 0 then fresh = max(fresh, s.newest + 1) end
    return fresh
  end

  algorithms[6] = {
    rule = logRule, clear = logClear, load = logLoad, save = logSave,
    available = logAvailable, add = leaseAdd, sub = leaseSub,
    fits = logFits, fresh = leaseFresh, begins = logBegins,
    newest = leaseNewest, held = leaseHeld, release = leaseEnd,
    renew = function(s, now, n) leasePut(s, max(now, s.newest + 1), n) end,
  }
end
