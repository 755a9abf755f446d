#!lua flags=no-writes
-- One lock for people to read. Answers: OK, leases, waiters; both are lists of {host, file, token, space, mode, from,
-- to, fence, job}, all text: JSON made here would round the large numbers. job: '' is not known, '-' is of a host of an
-- older version. Then how many ms the rests of its two spaces last, flock before record; 0: none.
local function rows(list)
	local out = {}
	for i, e in ipairs(list) do
		out[i] = {e.host, e.file, e.token, e.space, e.mode, e.from, e.to, e.fence and number(e.fence) or '', e.job or '-'}
	end
	return out
end
local lock = read_lock()
local function left(key)
	return number(math.max(redis.call('PTTL', key), 0))
end
return {'OK', rows(lock.l), rows(lock.q), {left(KEYS[4]), left(KEYS[5])}}
