-- One TAKE from sliding buckets without credit, answered before anything else is
-- defined; see token_bucket_take.lua, and sliding_buckets.lua for how the
-- counters are written. It reads and writes only the counters that have come in
-- or gone out since the last take, and knows the others by their sum. What is
-- rare (another shape, counts above 65535, products past 2^53) is left to the
-- script below.
if #ARGV == 1 then
  local _, kind, flag, _, given, n, leave, limit, period, width, buckets =
    struct.unpack('>BBBBI8I8I8I8I8I8I8', ARGV[1])
  local edge = flag % 128
  if kind == 0 and leave == 0 and n > 0 and n <= limit then
    local key = KEYS[1]
    local v = redis.call('GET', key)
    local now = given - 1
    if given == 0 then
      local t = redis.call('TIME')
      now = t[1] * 1000000 + t[2]
    end
    local floor, byte, sub, rep, exact = math.floor, string.byte, string.sub, string.rep, 9007199254740991
    local size, current = buckets + 1, floor(now / width)
    local newest, total, words, known = current, 0, nil, true
    if not v then
      words = rep('\0', size * 2)
    else
      known = #v == 29 + size * 2
      if known then
        local w, p, s, code
        newest, w, p, s, code, total = struct.unpack('>I7I6I6I2BI7', v)
        known = w == width and p == period and s == size and code == 3 and newest * width <= now + 60000000
        words = sub(v, 30)
      end
    end
    -- count returns that of sub-window j, which the ring must hold.
    local function count(j)
      local i = j % size * 2
      local hi, lo = byte(words, i + 1, i + 2)
      return hi * 256 + lo
    end
    local held = newest * width -- a clock that has gone back stands still here
    if known and current > newest then
      local first = newest + 1
      if current - first >= size then
        words, total = rep('\0', size * 2), 0
      else
        for j = first, current do total = total - count(j) end
        local a, z = first % size, current % size
        if a <= z then
          words = sub(words, 1, a * 2) .. rep('\0', (z - a + 1) * 2) .. sub(words, z * 2 + 3)
        else
          words = rep('\0', (z + 1) * 2) .. sub(words, z * 2 + 3, a * 2) .. rep('\0', (size - a) * 2)
        end
      end
      newest = current
    end
    if known and newest >= size then
      local start = newest * width
      local from = (now > start and now or start) - period
      local oldest = floor(from / width)
      local overlap = (oldest + 1) * width - from
      -- rest is what sub-windows from oldest on have counted.
      local rest, product = total, 0
      for j = newest - size + 1, oldest - 1 do rest = rest - count(j) end
      local used = rest
      if oldest > newest - size and overlap ~= width and edge ~= 2 then
        local c = count(oldest)
        product = c * overlap
        used = rest - c + (edge == 1 and 0 or floor(product / width))
      end
      -- leaves returns when sub-window j, which has counted c, adds at most
      -- most; nil if that is for the script below.
      local function leaves(j, c, most)
        if edge == 1 then return j * width + period + 1 end
        local at = (j + 1) * width + period
        if edge == 2 then return at end
        local share = (most + 1) * width
        if share > exact then return nil end
        return at - floor((share - 1) / c)
      end
      local free = limit - used
      local i = newest % size * 2
      if product <= exact and n <= free then
        local c = count(newest) + n
        local at = leaves(newest, c, 0)
        if c <= 65535 and at and at <= exact then
          local reset = at - now
          local how, ends = 'PX', 3600000
          if given == 0 then how, ends = 'PXAT', math.ceil(at / 1000) end
          redis.call('SET', key, struct.pack('>I7I6I6I2BI7', newest, width, period, size, 3, total + n)
            .. sub(words, 1, i) .. struct.pack('>I2', c) .. sub(words, i + 3), how, ends)
          if given == 0 then return {free - n, reset, at} end
          return {1, free - n, n, 0, reset, 0, at, at}
        end
      elseif product <= exact and (flag < 128 or count(newest) + n <= 65535) then
        if flag >= 128 then
          total, rest, free = total + n, rest + n, free - n
          words = sub(words, 1, i) .. struct.pack('>I2', count(newest) + n) .. sub(words, i + 3)
        end
        local j, retry = oldest > newest - size and oldest or newest - size + 1, nil
        while j <= newest and not retry do
          local c = count(j)
          rest = rest - c
          local spare = limit - n - rest
          if spare >= 0 and c > spare then retry = leaves(j, c, spare) or exact + 1 end
          j = j + 1
        end
        j = newest
        while j > newest - size and count(j) == 0 do j = j - 1 end
        local fresh = j > newest - size and leaves(j, count(j), 0)
        if retry and fresh and retry <= exact and fresh <= exact then
          if retry < now then retry = now end
          if fresh <= held or fresh < now then fresh = now end
          if flag >= 128 then
            local how, ends = 'PX', 3600000
            if given == 0 then how, ends = 'PXAT', math.ceil(fresh / 1000) end
            redis.call('SET', key, struct.pack('>I7I6I6I2BI7', newest, width, period, size, 3, total) .. words, how, ends)
          end
          if free < 0 then free = 0 end
          if given == 0 then return {-1 - free, retry - now, fresh - now} end
          return {2, free, 0, retry - now, fresh - now, 0, 0, fresh}
        end
      end
    end
  end
end
