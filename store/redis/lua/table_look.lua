-- Which table this is, how often something was written back into it, its version,
-- and the time in microseconds.
return {id, generation, now or '0', string.format('%.0f', us)}
