#!lua flags=allow-oom
-- An operator gives a host up, and what it has is swept next. If it lives, nothing that it asks raises its beat or grants it a lease until
-- it has heard of that, and says so with a beat (renew.lua): so it learns that its leases may be gone before it renews them once more. ARGV 2 host  3 beat: only if its
-- beat is still that one
-- Answers: OK | GONE (it has another beat) | INC
-- The mark of a host that never comes back stays for a day. It is needed for one ttl: a host that was silent for longer
-- asks about each of its leases anyway. The record names the hosts with marks: to read all of it would meet every beat and every
-- grant in the engines that compare what was read.
local DAY_MS = 24 * 3600 * 1000
if not known(true) then
	return {'INC'}
end
if beat_of(ARGV[2]) ~= ARGV[3] then
	return {'GONE'}
end
local field, now, marked = 'given:' .. ARGV[2], now_ms(), {ARGV[2]}
for host in string.gmatch(redis.call('HGET', STORE, 'given') or '', '%S+') do
	local at = host ~= ARGV[2] and redis.call('HGET', STORE, 'given:' .. host)
	if at and math.abs(now - at) > DAY_MS then
		redis.call('HDEL', STORE, 'given:' .. host)
	elseif at then
		marked[#marked + 1] = host
	end
end
redis.call('HSET', STORE, 'given', table.concat(marked, ' '), field, number(math.max(now, (redis.call('HGET', STORE, field) or 0) + 1)))
return {'OK'}
