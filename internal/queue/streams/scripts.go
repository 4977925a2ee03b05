package streams

import (
	"strings"

	"github.com/redis/rueidis"
)

// All keys of one limit share a hash tag, so that a script can use all of them in a cluster
// too. Their names end in:
//
//	:p:N    stream of partition N; its entries have the field e, a record without header and body
//	:r      hash: id → record
//	:x      hash: id → place: stream entry (0 for a dead letter), size, partition, line
//	:s      hash: id → note about a pending entry, as JSON
//	:z :a   dead letters: sorted set of ids by time, hash: id → note
//	:m      hash: n and b, entries and bytes pending; dn and db, the same of dead letters
//	:w      hash: line → number of pending entries
//	:v      hash: line → bytes of these
//	:i:H    fingerprint and id of the entry with an idempotency key; valid while :r or :d has the entry
//	:d:ID   result of a delivered entry
//	:k:ID   an entry that must not appear any more
//	:u      hash: id of an entry not yet confirmed to its senders → the ids that they gave it
//	:l:N    lease of partition N: the process that sends its entries
//
// The streams, and keys without a second colon, exist permanently once the limit is known: lay
// puts a member - into them. So Redis can check, while a cluster moves their slot, whether
// they are together. A script that names them runs where they are, and fails with TRYAGAIN
// while they are apart. It must not create other keys then, so a script that does names :k,
// which never exists, and waits until the slot has moved.
const (
	hashes = ":m :r :x :s :a :w :v :u"
	all    = hashes + " :z :p:"
	// common has functions that other scripts need. leave takes an entry out of the pending
	// ones.
	common = `
local b = string.sub(KEYS[1], 1, -3)
local function place(id)
  local x = redis.call('HGET', b..':x', id)
  if not x then return nil end
  local sid, size, n, lane = string.match(x, '^(%S+) (%d+) (%d+) (%S+)$')
  return sid, tonumber(size), n, lane
end
local function leave(id, sid, size, n, lane)
  redis.call('XACK', b..':p:'..n, 'hg', sid)
  redis.call('XDEL', b..':p:'..n, sid)
  redis.call('HDEL', b..':s', id)
  redis.call('HDEL', b..':u', id)
  redis.call('HINCRBY', b..':m', 'n', -1)
  redis.call('HINCRBY', b..':m', 'b', -size)
  redis.call('HINCRBY', b..':v', lane, -size)
  if redis.call('HINCRBY', b..':w', lane, -1) <= 0 then
    redis.call('HDEL', b..':w', lane)
    redis.call('HDEL', b..':v', lane)
  end
end
local function unbury(id, size)
  redis.call('ZREM', b..':z', id)
  redis.call('HDEL', b..':a', id)
  redis.call('HINCRBY', b..':m', 'dn', -1)
  redis.call('HINCRBY', b..':m', 'db', -size)
end
local function enter(id, size, n, lane, ref)
  local sid = redis.call('XADD', b..':p:'..n, '*', 'e', ref)
  redis.call('HSET', b..':x', id, sid..' '..size..' '..n..' '..lane)
  redis.call('HINCRBY', b..':m', 'n', 1)
  redis.call('HINCRBY', b..':m', 'b', size)
  redis.call('HINCRBY', b..':v', lane, size)
  return redis.call('HINCRBY', b..':w', lane, 1)
end
`
	// partition, id, line, record, size, most entries, most bytes, ref, idempotency hash or
	// nothing, its value, its time to live in ms, most entries and most bytes of the line, note.
	putText = common + `
local n, id, lane = ARGV[1], ARGV[2], ARGV[3]
if redis.pcall('EXISTS', b..':k:'..id) == 1 then return {'gone'} end
if redis.call('HEXISTS', b..':r', id) == 1 or redis.pcall('EXISTS', b..':d:'..id) == 1 then
  redis.call('HSET', b..':u', '-', '') -- for WAIT to wait for what came before
  return {'ok', id, tonumber(redis.call('HGET', b..':w', lane) or '0')}
end
if ARGV[9] ~= '' then
  local known = redis.call('GET', b..':i:'..ARGV[9])
  local first = known and string.sub(known, #ARGV[10] - #id + 1)
  if first and (redis.call('HEXISTS', b..':r', first) == 1 or redis.call('EXISTS', b..':d:'..first) == 1) then
    local untold = redis.call('HGET', b..':u', first)
    if untold and not string.find(untold, id, 1, true) then
      redis.call('HSET', b..':u', first, untold..' '..id) -- one more who waits to be told
    end
    redis.call('HSET', b..':u', '-', '')
    return {'again', known}
  end
end
local size = tonumber(ARGV[5])
local entries = tonumber(redis.call('HGET', b..':m', 'n') or '0')
local bytes = tonumber(redis.call('HGET', b..':m', 'b') or '0')
if entries + 1 > tonumber(ARGV[6]) or bytes + size > tonumber(ARGV[7]) then return {'full'} end
local waiting = tonumber(redis.call('HGET', b..':w', lane) or '0')
if waiting > 0 then
  local held = tonumber(redis.call('HGET', b..':v', lane) or '0')
  if waiting + 1 > tonumber(ARGV[12]) or held + size > tonumber(ARGV[13]) then return {'full'} end
else
  redis.call('HDEL', b..':v', lane) -- an older version counts no bytes of lanes
end
redis.call('HSET', b..':r', id, ARGV[4])
redis.call('HSET', b..':u', id, id)
redis.call('HSET', b..':s', id, ARGV[14])
local position = enter(id, ARGV[5], n, lane, ARGV[8])
if ARGV[9] ~= '' then redis.call('SET', b..':i:'..ARGV[9], ARGV[10], 'PX', ARGV[11]) end
return {'ok', id, position}
`
	// partition, id, idempotency hash or nothing, time: withdraws an entry that was not
	// confirmed to its sender, or drops one for an operator. With a time in ms it withdraws:
	// the entry must not appear later either, but stays if another sender of it has been or
	// will be confirmed.
	dropText = common + `
local id = ARGV[2]
if ARGV[4] ~= '0' then
  local sender, own = id, redis.call('HEXISTS', b..':r', id) == 1
  if own and redis.call('HEXISTS', b..':u', id) == 0 then return 0 end
  redis.call('SET', b..':k:'..sender, '1', 'PX', ARGV[4])
  local known = not own and ARGV[3] ~= '' and redis.call('GET', b..':i:'..ARGV[3])
  if known then id = string.sub(known, #known - #id + 1) end
  local untold = redis.call('HGET', b..':u', id)
  if known and not untold then return 0 end
  local others = {}
  for other in string.gmatch(untold or '', '%S+') do
    if other == '1' then other = id end -- as an older version has it
    if other ~= sender then others[#others + 1] = other end
  end
  if #others > 0 then
    redis.call('HSET', b..':u', id, table.concat(others, ' '))
    return 0
  end
end
local sid, size, n, lane = place(id)
if not sid then return 0 end
if sid == '0' then unbury(id, size) else leave(id, sid, size, n, lane) end
redis.call('HDEL', b..':r', id)
redis.call('HDEL', b..':x', id)
if ARGV[3] ~= '' then redis.call('DEL', b..':i:'..ARGV[3]) end
return 1
`
	// id: the entry is confirmed to its sender. The second write is for WAIT to wait for.
	confirmText = `
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], '-', '')
return 1
`
	// partition, token (nothing if the lease is certainly held), id, for how many ms an entry
	// may be withdrawn.
	loadText = common + `
if ARGV[2] ~= '' and redis.call('GET', b..':l:'..ARGV[1]) ~= ARGV[2] then return {'lost'} end
local sid = place(ARGV[3])
local record = redis.call('HGET', b..':r', ARGV[3])
if not record or sid == '0' then return {'gone'} end
if redis.call('HEXISTS', b..':u', ARGV[3]) == 1 then
  local t = redis.call('TIME')
  local age = t[1] * 1000 + math.floor(t[2] / 1000) - tonumber(string.match(sid, '^(%d+)'))
  if math.abs(age) < tonumber(ARGV[4]) then return {'unsure'} end -- below 0, the clock was ahead
end
return {'ok', record}
`
	// partition, id: it was delivered, no matter by whom.
	deliverText = common + `
local id = ARGV[2]
local sid, size, n, lane = place(id)
if not sid then return 0 end
if sid == '0' then unbury(id, size) else leave(id, sid, size, n, lane) end
redis.call('HDEL', b..':r', id)
redis.call('HDEL', b..':x', id)
return 1
`
	// partition, token, id, note.
	postponeText = common + `
if ARGV[2] ~= '' and redis.call('GET', b..':l:'..ARGV[1]) ~= ARGV[2] then return {'lost'} end
local sid = place(ARGV[3])
if not sid or sid == '0' then return {'gone'} end
redis.call('HSET', b..':s', ARGV[3], ARGV[4])
return {'ok'}
`
	// partition, token, id, note, time, most entries, most bytes.
	buryText = common + `
if ARGV[2] ~= '' and redis.call('GET', b..':l:'..ARGV[1]) ~= ARGV[2] then return {'lost'} end
local id = ARGV[3]
local sid, size, n, lane = place(id)
if not sid or sid == '0' then return {'gone'} end
leave(id, sid, size, n, lane)
redis.call('HSET', b..':x', id, '0 '..size..' '..n..' '..lane)
redis.call('HSET', b..':a', id, ARGV[4])
redis.call('ZADD', b..':z', ARGV[5], id)
local count = redis.call('HINCRBY', b..':m', 'dn', 1)
local bytes = redis.call('HINCRBY', b..':m', 'db', size)
local dropped = 0
while count > tonumber(ARGV[6]) or bytes > tonumber(ARGV[7]) do
  local oldest = redis.call('ZRANGE', b..':z', 0, 1)
  local old = oldest[1] == id and oldest[2] or oldest[1] -- of the same millisecond
  if not old or old == id or old == '-' then break end
  local _, s = place(old)
  unbury(old, s)
  redis.call('HDEL', b..':r', old)
  redis.call('HDEL', b..':x', old)
  count, bytes, dropped = count - 1, bytes - s, dropped + 1
end
return {'ok', dropped}
`
	// partition, id, record, ref, note.
	retryText = common + `
local id = ARGV[2]
local sid, size, n, lane = place(id)
if sid ~= '0' then return 0 end
unbury(id, size)
redis.call('HSET', b..':r', id, ARGV[3])
redis.call('HSET', b..':s', id, ARGV[5])
enter(id, size, n, lane, ARGV[4])
return 1
`
	// partition, node, time to live in ms. A lease that the node holds without knowing it gets
	// a new token. One that lives for longer is from when the clock was ahead: its holder
	// still has the time to renew it.
	acquireText = `
local t = redis.call('TIME')
local token = ARGV[2]..'/'..t[1]..'.'..t[2]
if string.find(redis.call('GET', KEYS[1]) or token, ARGV[2], 1, true) ~= 1 then
  if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
  return false
end
return redis.call('SET', KEYS[1], token, 'PX', ARGV[3]) and token
`
	// partition, token, time to live in ms; 0 releases it.
	renewText = `
if redis.call('GET', KEYS[1]) ~= ARGV[2] then return 0 end
if ARGV[3] == '0' then redis.call('DEL', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return 1
`
	// number of partitions.
	depthText = common + `
local m = redis.call('HMGET', b..':m', 'n', 'b', 'dn')
local oldest = ''
for n = 0, tonumber(ARGV[1]) - 1 do
  local first = redis.call('XRANGE', b..':p:'..n, '-', '+', 'COUNT', 1)[1]
  if first then
    local ms = tonumber(string.match(first[1], '^(%d+)'))
    if oldest == '' or ms < oldest then oldest = ms end
  end
end
return {tonumber(m[1] or '0'), tonumber(m[2] or '0'), tonumber(m[3] or '0'), oldest == '' and 0 or oldest}
`
)

// script is a Lua script and the suffixes of the keys that it uses. A suffix that ends in a
// colon is followed by the partition, the script's first argument.
type script struct {
	*rueidis.Lua
	text, ends string
}

func newScript(text, ends string) *script { return &script{rueidis.NewLuaScript(text), text, ends} }

// keys returns the script's keys for a limit; the lease only if the token is given.
func (s *script) keys(base string, args []string) (keys []string) {
	for end := range strings.FieldsSeq(s.ends) {
		if end == ":l:" && args[1] == "" {
			continue
		}
		if strings.HasSuffix(end, ":") {
			end += args[0]
		}
		keys = append(keys, base+end)
	}
	return keys
}

// scripts are the scripts of a Store.
type scripts struct {
	put, putOnce, confirm, drop, load, deliver, postpone, bury, retry, acquire, renew, depth *script
}

func newScripts() scripts {
	return scripts{
		put: newScript(putText, all), putOnce: newScript(putText, all+" :k"), confirm: newScript(confirmText, ":u"),
		drop: newScript(dropText, all+" :k"), load: newScript(loadText, all+" :l:"), deliver: newScript(deliverText, all),
		postpone: newScript(postponeText, all+" :l:"), bury: newScript(buryText, all+" :l:"), retry: newScript(retryText, all),
		acquire: newScript(acquireText, ":l:"), renew: newScript(renewText, ":l:"),
		depth: newScript(depthText, ":m :p:0 :p:1 :p:2 :p:3 :p:4 :p:5 :p:6 :p:7"),
	}
}
