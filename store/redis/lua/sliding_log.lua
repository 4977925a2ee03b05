-- Twin of algorithm/sliding_log.go.
--
-- State: a header and then one word of eight bytes an entry, time*1024 + count
-- in two halves, or for counts of 1023 and more a second word with the count.
--
--   total, head, length, newest, newestAt, credit, until
--
-- A log of up to 4 KB is read and written whole, without the entries before the
-- head, so that it needs no more memory than its entries. A longer one is
-- changed in place: the header, and what is new at the end; it is moved to the
-- front when half of it lies before the head.
--
-- In s the words are those stored, up to cut, and then those in tail. A part of
-- the stored ones is in s.chunk, from s.chunkAt on.

local logFormat = '>I6I4I4I7I4I6I7'
local logHeader = 38
local logWhole = 4096
local logLong = 1023

local function logClear(s)
  s.total, s.head, s.length, s.newest, s.newestAt = 0, 0, 0, 0, 0
  s.cut, s.tail, s.chunk, s.chunkAt, s.chunkEnd = 0, '', '', 0, 0
end

local function logLoad(s, key)
  s.key, s.tail = key, ''
  local v = redis.call('GETRANGE', key, 0, logWhole - 1)
  if v == '' then
    logClear(s)
    return s
  end
  if #v < logHeader then return nil end
  s.total, s.head, s.length, s.newest, s.newestAt, s.credit, s.till = unpackBytes(logFormat, v)
  s.cut = s.length
  s.stored = s.length
  s.chunk, s.chunkAt = string.sub(v, logHeader + 1), 0
  s.chunkEnd = floor((#v - logHeader) / 8)
  if s.chunkEnd < s.length and #v < logWhole then return nil end
  return s
end

-- logBytes returns words from up to but not including to as a string.
local function logBytes(s, from, to)
  local stored = min(to, s.cut)
  local bytes = ''
  if from < stored then
    if from >= s.chunkAt and stored <= s.chunkEnd then
      bytes = string.sub(s.chunk, (from - s.chunkAt) * 8 + 1, (stored - s.chunkAt) * 8)
    else
      bytes = redis.call('GETRANGE', s.key, logHeader + from * 8, logHeader + stored * 8 - 1)
    end
  end
  if to > s.cut then
    bytes = bytes .. string.sub(s.tail, max(from - s.cut, 0) * 8 + 1, (to - s.cut) * 8)
  end
  return bytes
end

local function logWord(s, i)
  if i >= s.cut then return unpackBytes('>I4I4', s.tail, (i - s.cut) * 8 + 1) end
  if i < s.chunkAt or i >= s.chunkEnd then
    s.chunkAt, s.chunkEnd = i, min(i + 512, s.stored)
    s.chunk = redis.call('GETRANGE', s.key, logHeader + i * 8, logHeader + s.chunkEnd * 8 - 1)
  end
  return unpackBytes('>I4I4', s.chunk, (i - s.chunkAt) * 8 + 1)
end

-- logEntry reads the entry at i: its time, its count and the next index.
local function logEntry(s, i)
  local hi, lo = logWord(s, i)
  local count = lo % 1024
  local at = hi * 4194304 + (lo - count) / 1024
  if count < logLong then return at, count, i + 1 end
  hi, lo = logWord(s, i + 1)
  return at, hi * 4294967296 + lo, i + 2
end

local function logWords(at, count)
  local hi = floor(at / 4194304)
  local lo = (at - hi * 4194304) * 1024
  if count < logLong then return pack('>I4I4', hi, lo + count), 1 end
  local high = floor(count / 4294967296)
  return pack('>I4I4I4I4', hi, lo + logLong, high, count - high * 4294967296), 2
end

local function logAt(r, s, now)
  local total, head = s.total, s.head
  while head < s.length do
    local at, count, following = logEntry(s, head)
    if now < at + r.period then break end
    total = total - count
    head = following
  end
  return total, head
end

local function logAvailable(r, s, now)
  local total = logAt(r, s, now)
  return r.limit - total
end

-- logCut drops the words from index i on.
local function logCut(s, i)
  if i >= s.cut then
    s.tail = string.sub(s.tail, 1, (i - s.cut) * 8)
  else
    s.cut, s.tail = i, ''
  end
  s.length = i
end

-- logAdd takes n at now, for what was drawn until a later time, as of which it counts.
local function logAdd(r, s, now, n, till)
  s.total, s.head = logAt(r, s, now)
  n = min(n, maxCount - s.total)
  if n == 0 then return end
  local at = till or now
  local live = s.length - s.head
  if live == 0 then
    logCut(s, 0)
    s.head = 0
  else
    at = max(at, s.newest)
    if at == s.newest or live > 2 * r.limit + 64 then
      local _, count = logEntry(s, s.newestAt)
      logCut(s, s.newestAt)
      n = n + count
      s.total = s.total - count
    end
  end
  s.total = s.total + n
  s.newest, s.newestAt = at, s.length
  local words, length = logWords(at, n)
  s.tail = s.tail .. words
  s.length = s.length + length
end

local function logForget(r, s)
  while s.head < s.newestAt do
    local _, count, following = logEntry(s, s.head)
    if s.total - count < r.limit then break end
    s.total = s.total - count
    s.head = following
  end
end

-- logTaken returns from when on the take of about that time may be found.
local function logTaken(r, s, head, about)
  local i = head
  while i < s.length do
    local at, _, following = logEntry(s, i)
    if at >= about then
      if at == about then return at end
      break
    end
    i = following
  end
  return about - min(maxLate, floor(r.period / 8))
end

local function logSub(r, s, now, n, left)
  local total, head = logAt(r, s, now)
  if total == 0 then return false end
  local taken, last, alone = never, never, r.denied and left > 0
  if left > 0 then
    local about = now + left - r.period
    taken = logTaken(r, s, head, about)
    if alone then last = about + (about - taken) end
  end
  local since, newer, i = 0, 0, head
  while i < s.length do
    local at, count, following = logEntry(s, i)
    if at > last then
      newer = newer + count
    elseif at >= taken then
      since = since + count
    end
    i = following
  end
  local fromSince = min(n, since)
  local older = total - since - newer
  local keepOlder = alone and older or max(older - (n - fromSince), 0)
  if alone and fromSince == 0 then return false end
  local parts, words, sum, newest, newestAt = {}, 0, 0, 0, 0
  i = head
  while i < s.length do
    local at, count, following = logEntry(s, i)
    if at > last then
      -- it stays
    elseif at >= taken then
      local gone = min(count, fromSince)
      fromSince = fromSince - gone
      count = count - gone
    else
      count = min(count, keepOlder)
      keepOlder = keepOlder - count
    end
    if count > 0 then
      local entry, length = logWords(at, count)
      parts[#parts + 1] = entry
      sum, newest, newestAt, words = sum + count, at, words, words + length
    end
    i = following
  end
  s.total, s.head, s.length, s.newest, s.newestAt = sum, 0, words, newest, newestAt
  s.cut, s.tail = 0, table.concat(parts)
  return true
end

local function logFits(r, s, now, n)
  local total, head = logAt(r, s, now)
  while head < s.length do
    local at, count, following = logEntry(s, head)
    total = total - count
    if total + n <= r.limit then return at + r.period end
    head = following
  end
  return now
end

local function logFresh(r, s, now)
  local total = logAt(r, s, now)
  if total == 0 then return now end
  return s.newest + r.period
end

local function logBegins(r, s)
  return s.newest, r.period
end

local function logDrawEnd()
  return maxInteger
end

local function logHead(s)
  return pack(logFormat, s.total, s.head, s.length, s.newest, s.newestAt, s.credit, s.till)
end

local function logSave(key, s, how, ends)
  local live = s.length - s.head
  local short = logHeader + live * 8 <= logWhole
  if short or s.cut == 0 or s.head * 2 >= s.length then
    local bytes = logBytes(s, s.head, s.length)
    s.newestAt, s.length, s.head = s.newestAt - s.head, live, 0
    s.cut, s.tail = 0, bytes
    redis.call('SET', key, logHead(s) .. bytes, how, ends)
    return
  end
  redis.call('SETRANGE', key, logHeader + s.cut * 8, s.tail)
  redis.call('SETRANGE', key, 0, logHead(s))
  redis.call(how == 'PX' and 'PEXPIRE' or 'PEXPIREAT', key, ends)
end

local function logRule(r, a, b)
  r.limit, r.most, r.period = a, a, b
end

algorithms[3] = {
  rule = logRule, clear = logClear, load = logLoad, save = logSave,
  available = logAvailable, add = logAdd, sub = logSub,
  fits = logFits, fresh = logFresh, forget = logForget, drawEnd = logDrawEnd,
  begins = logBegins,
}
