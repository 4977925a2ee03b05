-- How far another region's table has been read, as the last merge said. ARGV: the
-- other region.
return redis.call('HGET', store, 'read:' .. ARGV[1]) or ''
