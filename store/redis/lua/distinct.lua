-- Twin of algorithm/distinct.go. It comes after step.lua, of which it replaces the
-- kinds that take and give back. Their cost is here the value, flag 64 says that the
-- cost is 0, and flag 32 that it is more than fits into any limit.
--
-- State: a header and the values, seven bytes each in ascending order; or a longer
-- header and the registers, six bytes for eight of them; or a longer header and 256
-- buckets of the values that begin with the same eight bits, each a list with zeros up
-- to its size.
--
--   1, count, end of the window, code, credit, until
--   2, count, end of the window, code, credit, until, chance, fraction
--   3, count, end of the window, code, credit, until, values in a bucket at most
--
-- Of a long list, registers or buckets only what the request needs is read. A list is
-- written whole, which happens once for each new value of a window; registers and
-- buckets are changed in place. The 4097th value turns a list into buckets.
--
-- In s the values are in body, or nil if they have not been read; registers that were
-- read are in words, buckets in buckets, and changed says which of those are to be
-- written. rewrite says that the whole state is.

local distinctFormat = '>BI6I7I6I6I7'
local distinctHeader = 33
local distinctLong = '>I7I2' -- follows the header before registers
local distinctRegisters = 42 -- where they begin
local distinctBuckets = 35 -- where they begin
local distinctFirst = 1024 -- bytes that are read at once
local distinctKept = 4096
local distinctExact = 65536
local distinctNear = 128 -- values to each side of where one is expected
local distinctCertain = 4503599627370496 -- 2^52
local distinctRest = 274877906944 -- 2^38

-- distinctEmpty makes s a list without values.
local function distinctEmpty(s)
  s.body, s.chance, s.fraction, s.words, s.rewrite = '', nil, 0, nil, true
  s.size, s.buckets, s.changed = nil, nil, nil
end

local function distinctClear(s)
  fixedClear(s)
  distinctEmpty(s)
end

local function distinctLoad(s, key)
  s.key = key
  local v = redis.call('GETRANGE', key, 0, distinctFirst - 1)
  if v == '' then
    distinctClear(s)
    return s
  end
  if #v < distinctHeader then return nil end
  local form
  form, s.count, s.finish, s.code, s.credit, s.till = unpackBytes(distinctFormat, v)
  if form == 2 and #v == distinctFirst then
    s.chance, s.fraction = unpackBytes(distinctLong, v, distinctHeader + 1)
    s.words = {}
    return s
  end
  s.fraction = 0
  if form == 3 and #v == distinctFirst then
    s.size = unpackBytes('>I2', v, distinctHeader + 1)
    s.buckets, s.changed = {}, {}
    return s
  end
  local length = distinctHeader + s.count * 7
  if form ~= 1 or s.count > distinctExact or #v ~= min(length, distinctFirst) then return nil end
  if #v == length then s.body = string.sub(v, distinctHeader + 1) end
  return s
end

local function distinctBody(s)
  if not s.body then s.body = redis.call('GETRANGE', s.key, distinctHeader, -1) end
  return s.body
end

-- distinctSearch returns how many values in part, before its zeros, are smaller than
-- value, and whether it is one of them.
local function distinctSearch(part, value)
  local low, high = 0, #part / 7
  while low < high do
    local middle = floor((low + high) / 2)
    local other = unpackBytes('>I7', part, middle * 7 + 1)
    if other > 0 and other < value then
      low = middle + 1
    else
      high = middle
    end
  end
  return low, low * 7 < #part and unpackBytes('>I7', part, low * 7 + 1) == value
end

-- distinctWith returns part with value in its place.
local function distinctWith(part, value)
  local at = distinctSearch(part, value) * 7
  return string.sub(part, 1, at) .. pack('>I7', value) .. string.sub(part, at + 1)
end

-- distinctHas reports whether the list has value. As values are hashes, it is about as
-- far behind the first as it is large.
local function distinctHas(s, value)
  if not s.body then
    local about = floor(value / distinctCertain * s.count)
    local from, upto = max(about - distinctNear, 0), min(about + distinctNear, s.count)
    local part = redis.call('GETRANGE', s.key, distinctHeader + from * 7, distinctHeader + upto * 7 - 1)
    if (from == 0 or unpackBytes('>I7', part) <= value) and (upto == s.count or unpackBytes('>I7', part, #part - 6) >= value) then
      local _, found = distinctSearch(part, value)
      return found
    end
  end
  local _, found = distinctSearch(distinctBody(s), value)
  return found
end

-- distinctBucketsOf returns what the buckets of s, which has them or gets them, can do.
-- Their functions are in here because every call has to define what it does not skip.
local function distinctBucketsOf(s)
  local size, buckets, changed = s.size, s.buckets, s.changed
  local width = distinctCertain / 256
  local most = 512 -- values in a bucket

  local function get(i)
    if not buckets[i] then
      local from = distinctBuckets + i * size * 7
      buckets[i] = redis.call('GETRANGE', s.key, from, from + size * 7 - 1)
    end
    return buckets[i]
  end

  -- each replaces every bucket by what change returns.
  local function each(change)
    local all = redis.call('GETRANGE', s.key, distinctBuckets, -1)
    for i = 0, 255 do
      buckets[i] = change(buckets[i] or string.sub(all, i * size * 7 + 1, (i + 1) * size * 7))
    end
  end

  -- list returns all values, as a list has them, and leaves no buckets.
  local function list()
    each(function(part) return string.sub(part, 1, distinctSearch(part, distinctCertain) * 7) end)
    return table.concat(buckets, '', 0, 255)
  end

  -- fill makes buckets of a list. Where values are so uneven that a bucket has many
  -- more than the others, they stay a list.
  local function fill(body)
    local ends, at, longest = {[-1] = 0}, 0, 0
    for i = 0, 255 do
      at = distinctSearch(body, (i + 1) * width)
      longest = max(longest, at - ends[i - 1])
      ends[i] = at
    end
    distinctEmpty(s)
    size = longest + 2
    if size > most then
      s.body = body
      return
    end
    buckets, changed = {}, {}
    for i = 0, 255 do
      local part = string.sub(body, ends[i - 1] * 7 + 1, ends[i] * 7)
      buckets[i] = part .. string.rep('\0', size * 7 - #part)
    end
    s.body, s.size, s.buckets, s.changed = nil, size, buckets, changed
  end

  local function add(value)
    local i = floor(value / width)
    if string.sub(get(i), -7) ~= '\0\0\0\0\0\0\0' then -- it is full
      local more = floor(size / 16) + 2
      if size + more > most then
        local body = list()
        distinctEmpty(s)
        s.body = distinctWith(body, value)
        return
      end
      local zeros = string.rep('\0', more * 7)
      each(function(part) return part .. zeros end)
      size, s.size, s.rewrite = size + more, size + more, true
    end
    buckets[i], changed[i] = string.sub(distinctWith(buckets[i], value), 1, -8), true
  end

  -- remove reports whether value was there.
  local function remove(value)
    local i = floor(value / width)
    local part = get(i)
    local at, found = distinctSearch(part, value)
    if found then
      buckets[i], changed[i] = string.sub(part, 1, at * 7) .. string.sub(part, at * 7 + 8) .. '\0\0\0\0\0\0\0', true
    end
    return found
  end

  local function has(value)
    local _, found = distinctSearch(get(floor(value / width)), value)
    return found
  end

  return {list = list, fill = fill, add = add, remove = remove, has = has}
end

-- distinctPlace returns the word of value's register, what that is multiplied by in
-- the word, and the rank of value.
local function distinctPlace(value)
  local register = floor(value / distinctRest)
  local _, length = math.frexp(value % distinctRest)
  return floor(register / 8), 64 ^ (7 - register % 8), 39 - length
end

local function distinctWord(s, k)
  local word = s.words[k]
  if not word then
    word = 0
    if not s.rewrite then
      word = unpackBytes('>I6', redis.call('GETRANGE', s.key, distinctRegisters + k * 6, distinctRegisters + k * 6 + 5))
    end
    s.words[k] = word
  end
  return word
end

local function distinctChance(rank)
  return rank > 38 and 0 or 2 ^ (38 - rank)
end

-- distinctRaise raises the register of value if it is lower, and returns by how much the
-- estimate grows.
local function distinctRaise(s, value)
  local k, scale, rank = distinctPlace(value)
  local word = distinctWord(s, k)
  local was = floor(word / scale) % 64
  if was >= rank then return end
  local chance = s.chance
  s.words[k] = word + (rank - was) * scale
  s.chance = chance - distinctChance(was) + distinctChance(rank)
  local more = floor(distinctCertain / chance)
  local rest, parts = distinctCertain - more * chance, 0
  for _ = 1, 16 do
    rest, parts = rest * 2, parts * 2
    if rest >= chance then rest, parts = rest - chance, parts + 1 end
  end
  s.fraction = s.fraction + parts
  if s.fraction >= 65536 then
    s.fraction = s.fraction - 65536
    more = more + 1
  end
  return more
end

-- distinctEstimate replaces the values and another one by registers.
local function distinctEstimate(s, value)
  local body = (s.size and distinctBucketsOf(s).list() or distinctBody(s)) .. pack('>I7', value)
  distinctEmpty(s)
  s.chance, s.words, s.rewrite = distinctCertain, {}, true
  for i = 1, #body, 7 do
    distinctRaise(s, (unpackBytes('>I7', body, i)))
  end
  s.fraction = 0
end

-- distinctShows reports whether the window of now has value.
local function distinctShows(s, now, value)
  if value == 0 or s.count == 0 or now >= s.finish then return false end
  if s.size then return distinctBucketsOf(s).has(value) end
  if not s.chance then return distinctHas(s, value) end
  local k, scale, rank = distinctPlace(value)
  return floor(distinctWord(s, k) / scale) % 64 >= rank
end

-- distinctShow adds a value that the window of now does not have.
local function distinctShow(r, s, now, value)
  local count, finish = fixedWindow(r, s, now)
  if count == 0 then distinctEmpty(s) end
  local more = 1
  if s.chance then
    more = distinctRaise(s, value)
  elseif count >= (r.limit <= distinctExact and distinctExact or distinctKept) then
    distinctEstimate(s, value)
  elseif s.size then
    distinctBucketsOf(s).add(value)
  else
    s.body, s.rewrite = distinctWith(distinctBody(s), value), true
    if count == distinctKept then distinctBucketsOf(s).fill(s.body) end
  end
  s.count = min(count + more, maxCount)
  s.finish, s.code = finish, fixedCode(r)
end

local function distinctTakeBack(r, s, now, value, left)
  local count, finish = fixedWindow(r, s, now)
  if count == 0 or s.chance or left > 0 and now + left < finish - floor(r.period / 2) then return false end
  if s.size then
    if not distinctBucketsOf(s).remove(value) then return false end
  else
    local body = distinctBody(s)
    local i, found = distinctSearch(body, value)
    if not found then return false end
    s.body, s.rewrite = string.sub(body, 1, i * 7) .. string.sub(body, i * 7 + 8), true
  end
  s.count, s.finish, s.code = count - 1, finish, fixedCode(r)
  return true
end

local function distinctSave(key, s, how, ends)
  local head = pack(distinctFormat, s.chance and 2 or s.size and 3 or 1, s.count, s.finish, s.code, s.credit, s.till)
  if s.chance then head = head .. pack(distinctLong, s.chance, s.fraction) end
  if s.size then head = head .. pack('>I2', s.size) end
  if s.rewrite then
    local parts = {head, s.body}
    if s.chance then
      for k = 0, 2047 do parts[k + 2] = pack('>I6', s.words[k] or 0) end
    end
    if s.size then
      for i = 0, 255 do parts[i + 2] = s.buckets[i] end
    end
    redis.call('SET', key, table.concat(parts), how, ends)
    return
  end
  for k, word in pairs(s.words or {}) do
    redis.call('SETRANGE', key, distinctRegisters + k * 6, pack('>I6', word))
  end
  for i in pairs(s.changed or {}) do
    redis.call('SETRANGE', key, distinctBuckets + i * s.size * 7, s.buckets[i])
  end
  redis.call('SETRANGE', key, 0, head)
  redis.call(how == 'PX' and 'PEXPIRE' or 'PEXPIREAT', key, ends)
end

local function distinctTake(a, r, s, now, kind, n, value)
  if r.huge and kind ~= CHARGE and kind ~= TAKE_UP_TO then
    local res = done(a, r, s, now, 0, false)
    res.allowed, res.reason, res.retry = false, TOO_LARGE, never
    return res
  end
  local free, credit = max(a.available(r, s, now), -1), creditAt(s, now)
  local fit = split(r, n, free, credit) ~= nil
  local closed = r.limit == 0 and credit == 0
  if not closed and distinctShows(s, now, value) then return done(a, r, s, now, 0, false) end
  if not fit and kind ~= CHARGE then return refuse(a, r, s, now, n) end
  local res
  if n == 0 or kind == PEEK or closed then
    res = done(a, r, s, now, kind == CHARGE and n or 0, false)
  else
    spend(a, r, s, now, 0, free <= 0 and credit > 0 and 1 or 0)
    distinctShow(r, s, now, value)
    res = took(a, r, s, now, 1)
  end
  if not fit then
    local refusal = refuse(a, r, s, now, 1)
    res.allowed, res.reason, res.retry = false, refusal.reason, refusal.retry
  end
  return res
end

local function distinctStep(a, r, s, now, kind, n, duration)
  if kind <= CHARGE or kind == RESERVE then
    if r.kind == GRANT then n = 0 end -- asked as PEEK, with a cost in place of a value
    return distinctTake(a, r, s, now, kind, r.dry and 0 or 1, n)
  end
  if kind ~= REFUND and kind ~= UNDO then return step(a, r, s, now, kind, n, duration) end
  local late = r.dry
  if kind == UNDO then
    duration = duration - now
    late = late or duration <= 0
  end
  local wrote = not late and distinctTakeBack(r, s, now, n, duration)
  if wrote and a.fresh(r, s, now) <= now then a.clear(s) end
  return done(a, r, s, now, 0, wrote)
end

algorithms[7] = {
  rule = function(r, a, b, c, d, e, f)
    r.dry, r.flag = r.flag >= 64, r.flag % 64
    r.huge, r.flag = r.flag >= 32, r.flag % 32
    fixedRule(r, a, b, c, d, e, f)
  end,
  clear = distinctClear, load = distinctLoad, save = distinctSave, step = distinctStep,
  available = fixedAvailable, fits = fixedFits, fresh = fixedFresh, reset = ownReset, begins = fixedBegins,
  settle = function(r, s, now)
    local count = s.count
    fixedClear(s)
    local _, finish = fixedWindow(r, s, now)
    s.count, s.finish, s.code = count, finish, fixedCode(r)
  end,
}
