-- Returns the commands among ARGV that the user may not run, or ? if the server
-- cannot tell. KEY stands for KEYS[1]. Runs none of them.
if not redis.acl_check_cmd then return {'?'} end
local lacks = {}
for _, command in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(command, '%S+') do
    words[#words + 1] = word == 'KEY' and KEYS[1] or word
  end
  -- The server raises an error for a command that it does not have.
  local known, may = pcall(redis.acl_check_cmd, unpack(words))
  if known and not may then lacks[#lacks + 1] = command end
end
return lacks
