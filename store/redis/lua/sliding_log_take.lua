-- One TAKE from a short sliding log without credit, answered before anything
-- else is defined; see token_bucket_take.lua, and sliding_log.lua for how the
-- log is written. What is rare (counts of 1023 and more, two requests in one
-- microsecond, a clock that has gone back) is left to the script below.
if #ARGV == 1 then
  local _, kind, flag, _, given, n, leave, limit, period = struct.unpack('>BBBBI8I8I8I8I8', ARGV[1])
  if kind == 0 and leave == 0 and n > 0 and n < 1023 and n <= limit then
    local key = KEYS[1]
    local v = redis.call('GETRANGE', key, 0, 4095)
    local now = given - 1
    if given == 0 then
      local t = redis.call('TIME')
      now = t[1] * 1000000 + t[2]
    end
    local total, head, length, newest, credit = 0, 0, 0, -1, 0
    local known = v == ''
    if #v >= 38 then
      total, head, length, newest, _, credit = struct.unpack('>I6I4I4I7I4I6I7', v)
      known = head == 0 and credit == 0 and #v == 38 + length * 8 and #v < 4096 and newest <= now + 60000000
    end
    -- entry returns the time and the count of entry i.
    local function entry(i)
      local hi, lo = struct.unpack('>I4I4', v, 39 + i * 8)
      local count = lo % 1024
      if count == 1023 then known = false end
      return hi * 4194304 + (lo - count) / 1024, count
    end
    while known and head < length do
      local at, count = entry(head)
      if now < at + period then break end
      total = total - count
      head = head + 1
    end
    local live = length - head
    if known and total + n <= limit then
      if (now > newest or live == 0) and live <= 2 * limit + 64 and live < 507 then
        total = total + n
        local hi = math.floor(now / 4194304)
        local how, ends = 'PX', 3600000
        if given == 0 then how, ends = 'PXAT', math.ceil((now + period) / 1000) end
        redis.call('SET', key,
          struct.pack('>I6I4I4I7I4I6I7', total, 0, live + 1, now, live, 0, 0) .. string.sub(v, 39 + head * 8)
          .. struct.pack('>I4I4', hi, (now - hi * 4194304) * 1024 + n), how, ends)
        if given == 0 then return {limit - total, period, now + period} end
        return {1, limit - total, n, 0, period, 0, now + period, now + period}
      end
    elseif known and flag < 128 then
      local left, i = total, head
      while known and i < length do
        local at, count = entry(i)
        left = left - count
        if known and left + n <= limit then
          local free = total < limit and limit - total or 0
          local retry, reset = at + period - now, newest + period - now
          if given == 0 then return {-1 - free, retry, reset} end
          return {2, free, 0, retry, reset, 0, 0, newest + period}
        end
        i = i + 1
      end
    end
  end
end
