#!lua
-- Records by which rules a host goes, for people to compare: nothing that grants or renews reads it.
-- ARGV 2 place (which keeper of which machine; lasts longer than a host's id)  3 host  4 digest  5 text of the rules
-- ('': too long)  6 for how many ms
-- Answers: OK | FULL (no room for another place)
-- Nothing of this is needed: all keys expire, and a server that evicts what expires when memory is short may take them.
local MAX_PLACES, LOOK = 10000, 8
local RULES = string.sub(STORE, 1, -6) .. 'rules'
local TEXT = RULES .. ':' .. ARGV[4]
local now, keep = now_ms(), tonumber(ARGV[6])

-- A few places are looked at each time, so those that are gone never make up a large part.
local some = redis.call('HRANDFIELD', RULES, LOOK, 'WITHVALUES')
for i = 1, #some, 2 do
	local till = tonumber(string.match(some[i + 1], '^%S+ %d+ (%d+) '))
	if not till or till < now then
		redis.call('HDEL', RULES, some[i])
	end
end
if redis.call('HEXISTS', RULES, ARGV[2]) == 0 and redis.call('HLEN', RULES) >= MAX_PLACES then
	return {'FULL'}
end
redis.call('HSET', RULES, ARGV[2], ARGV[4] .. ' ' .. number(now) .. ' ' .. number(now + keep) .. ' ' .. ARGV[3])
if ARGV[5] ~= '' then
	redis.call('SET', TEXT, ARGV[5], 'KEEPTTL')
end
for _, key in ipairs({RULES, TEXT}) do
	local left = redis.call('PTTL', key) -- another host may keep it for longer
	if left < keep then
		redis.call('PEXPIRE', key, ARGV[6])
	end
end
return {'OK'}
