#!lua flags=no-writes
-- One lock for people to read. Answers: OK, leases, waiters; both are lists of {host, file, token, space, mode, from,
-- to, fence}, all text: JSON made here would round the large numbers.
local function rows(list)
	local out = {}
	for i, e in ipairs(list) do
		out[i] = {e.host, e.file, e.token, e.space, e.mode, e.from, e.to, e.fence and number(e.fence) or ''}
	end
	return out
end
local lock = read_lock()
return {'OK', rows(lock.l), rows(lock.q)}
