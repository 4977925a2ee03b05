-- The rows of a table that have changed after a version, the oldest change
-- first. ARGV: the version, and how many rows are wanted. The answer is the
-- table's version, and of each row the name, the version, its end in ms and the
-- value, which is absent if the row was deleted.
local found = redis.call('ZRANGEBYSCORE', changes, '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local answer = {now or '0'}
for i = 1, #found, 2 do
  answer[#answer + 1] = found[i]
  answer[#answer + 1] = found[i + 1]
  answer[#answer + 1] = redis.call('ZSCORE', ends, found[i]) or '0'
  answer[#answer + 1] = redis.call('HGET', rows, found[i])
end
return answer
