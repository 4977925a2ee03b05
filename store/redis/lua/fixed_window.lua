-- How the state is written is said in fixed_window_take.lua, which comes before.
algorithms[2] = {
  rule = fixedRule, clear = fixedClear, decode = fixedDecode, encode = fixedEncode,
  available = fixedAvailable, add = fixedAdd, sub = fixedSub,
  fits = fixedFits, fresh = fixedFresh, reset = ownReset, drawEnd = fixedFits, begins = fixedBegins,
}
