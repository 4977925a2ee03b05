-- Shared by every script of Headgate. Twin of the helpers in algorithm/.
--
-- Every number is an integer below 2^53, where doubles are exact. A product
-- that may pass 2^53 is only ever compared with a number below it: rounding
-- does not change the outcome, because a product of integers that is below
-- 2^53 is exact, and one that is not stays at or above it.

local floor, min, max = math.floor, math.min, math.max
local pack, unpackBytes = struct.pack, struct.unpack
local maxInteger = 9007199254740991 -- 2^53-1
local maxCount = 8796093022207 -- 2^43-1
local maxTime = 4503599627370496 -- 2^52
local maxLate = 65536 -- of a caller who returns a take, in microseconds
local never = math.huge

-- algorithms holds, by number, the functions of each algorithm that is part of
-- this script.
local algorithms = {}

-- ceilDiv returns a/b rounded up. floor(a/b) is exact for integers below 2^53.
local function ceilDiv(a, b)
  local q = floor(a / b)
  if q * b < a then return q + 1 end
  return q
end

-- mulDivMod returns the quotient and the remainder of a*b/c, for a below 2^49,
-- b at most c and c below 2^45. Where a*b does not fit, a is taken seven bits
-- at a time, as in long division, so that nothing passes 2^53.
local function mulDivMod(a, b, c)
  local product = a * b
  if product <= maxInteger then
    local q = floor(product / c)
    return q, product - q * c
  end
  local q, rest, scale = 0, 0, 4398046511104 -- 2^42
  while scale >= 1 do
    local digit = floor(a / scale)
    a = a - digit * scale
    local t = rest * 128 + digit * b
    local part = floor(t / c)
    rest = t - part * c
    q = q * 128 + part
    scale = scale / 128
  end
  return q, rest
end

-- mulDiv returns floor(a*b/c).
local function mulDiv(a, b, c)
  local q = mulDivMod(a, b, c)
  return q
end

-- overlapFor returns the largest overlap of w at which floor(count*overlap/w)
-- is at most most; count is more than most.
local function overlapFor(count, most, w)
  local q, rest = mulDivMod(w, most + 1, count)
  if rest == 0 then return q - 1 end
  return q
end
