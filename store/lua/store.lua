#!lua flags=allow-oom
-- The incarnation record. ARGV 2 what  3 ttl_ms
--   begin: if the record is missing or of another incarnation, records this one; nothing is granted until it is opened
--   open:  ends the grace of ARGV[1]: the caller has watched it for one ttl
--   init:  opens at once and sets ttl_ms: somebody's word that nothing uses the store
-- Answers: OK incarnation open | TTL ttl_ms (all hosts must use the same: deadlines are counted with it) | INC
local record = redis.call('HMGET', STORE, 'inc', 'open', 'ttl_ms', 'fence')
local what, ttl_ms = ARGV[2], ARGV[3]
local inc, open, fence = record[1], record[2], record[4] or '0'
local same = inc and is_of_this_server(inc)
if identity() == 'replica' then -- one that can be written
	return redis.error_reply('READONLY this server is a replica')
end
if what == 'open' and not (same and inc == ARGV[1]) then
	return {'INC'}
end
if what ~= 'init' and record[3] and record[3] ~= ttl_ms then
	return {'TTL', record[3]}
end
if not same then
	local t = redis.call('TIME')
	inc, open = identity() .. '-' .. t[1] .. '-' .. t[2], '0'
	-- Room for 1,024 grants per ms until the year 2248; a clock that went back must not bring old fences again.
	fence = number(math.max(tonumber(fence), now_ms() * 1024))
end
if what ~= 'begin' then
	open = '1'
end
-- Always, so that there is a write that replicas can acknowledge.
redis.call('HSET', STORE, 'inc', inc, 'open', open, 'ttl_ms', ttl_ms, 'fence', fence)
return {'OK', inc, open}
