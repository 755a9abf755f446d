#!lua flags=no-writes
-- One lock for people to read. Answers: OK, leases, waiters; both are lists of {host, file, token, space, mode, from,
-- to, fence, job}, all text: JSON made here would round the large numbers. job: '' is not known, '-' is of a host of an
-- older version. Then how many ms the rests of its two spaces last, flock before record; 0: none. Then {} or, if a client
-- has its key: {the beginning of the client's token, for how many ms (-1: for ever), key}. ARGV 2 key (renew.lua): that of the caller's rule; '':
-- that which an entry has
local function rows(list)
	local out = {}
	for i, e in ipairs(list) do
		out[i] = {e.host, e.file, e.token, e.space, e.mode, e.from, e.to, e.fence and number(e.fence) or '', e.job or '-'}
	end
	return out
end
local lock = read_lock()
local function left(space)
	local ms, all = rest_read(space)
	return number(math.min(ms, all))
end
local function client(key)
	local format, name = string.match(key, '^(%a+) (.+)$')
	local state = format and key_state(format, name, '') or 'free'
	if state == 'free' or state == 'other' then
		return {}
	end
	for _, e in ipairs(lock.l) do
		if key_state(format, name, e.token) == 'mine' then
			return {}
		end
	end
	return {key_holder(format, name), number(redis.call('PTTL', name)), name}
end
local key = ARGV[2] or ''
for _, list in ipairs({lock.l, lock.q}) do
	for _, e in ipairs(list) do
		key = key == '' and e.key or key
	end
end
return {'OK', rows(lock.l), rows(lock.q), {left('flock'), left('record')}, client(key)}
