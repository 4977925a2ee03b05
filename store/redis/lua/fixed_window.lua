-- How the state is written is said in fixed_window_take.lua, which comes before.
algorithms[2] = {
  rule = fixedRule, clear = fixedClear, decode = fixedDecode, encode = fixedEncode,
  reshaped = function(r, s) return s.count > 0 and s.code ~= fixedCode(r) end,
  available = fixedAvailable, add = fixedAdd, sub = fixedSub,
  fits = fixedFits, fresh = fixedFresh, reset = ownReset, drawEnd = fixedFits, begins = fixedBegins,
  kept = function(r, s, now, leave)
    local finish = s.finish
    if s.count == 0 or now >= finish then
      local _, fresh = fixedWindow(r, s, now)
      finish = fresh
    end
    return leave - mulDiv(leave, max(r.period - (finish - now), 0), r.period)
  end,
  keeps = function(r, s, n, leave)
    local spare = r.limit - n - s.count
    if spare < 0 then return s.finish end
    return s.finish - r.period + overlapFor(leave, leave - spare - 1, r.period) + 1
  end,
}
