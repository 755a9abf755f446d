#!lua flags=allow-oom
-- An operator gives a host up, and what it has is swept next. If it lives, nothing that it asks raises its beat or grants it a lease until
-- it has heard of that, and says so with a beat (renew.lua): so it learns that its leases may be gone before it renews them once more. ARGV 2 host  3 beat: only if its
-- beat is still that one
-- Answers: OK | GONE (it has another beat) | INC
-- The mark of a host that never comes back stays for a day. It is needed for one ttl: a host that was silent for longer
-- asks about each of its leases anyway.
local DAY_MS = 24 * 3600 * 1000
if not known(true) then
	return {'INC'}
end
if beat_of(ARGV[2]) ~= ARGV[3] then
	return {'GONE'}
end
local now, rows = now_ms(), redis.call('HGETALL', STORE)
for i = 1, #rows, 2 do
	if string.sub(rows[i], 1, 6) == 'given:' and math.abs(now - rows[i + 1]) > DAY_MS then
		redis.call('HDEL', STORE, rows[i])
	end
end
local field = 'given:' .. ARGV[2]
redis.call('HSET', STORE, field, number(math.max(now, (redis.call('HGET', STORE, field) or 0) + 1)))
return {'OK'}
