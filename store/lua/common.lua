-- In front of every script.
-- KEYS[1] the store's record (hash: inc, open, ttl_ms, fence; and the key of each lock that there is -> the incarnation
-- in which it was written)   KEYS[2] the hosts (hash: host -> beat)
-- KEYS[3] the lock, where there is one
-- ARGV[1] the incarnation that the caller knows
-- Numbers that matter stay below 2^53 and are written with %.0f: a Lua number is a double, and tostring() rounds it.
local STORE, HOSTS = KEYS[1], KEYS[2]

local function number(n)
	return string.format('%.0f', n)
end

local function now_ms()
	local t = redis.call('TIME')
	return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Whose data this server has. A master's replication id is new at every start and at every promotion; a master that
-- was demoted and comes back keeps its run id but not this. A replica shows its master's, so it must not count.
-- Connections survive all of these.
local function identity()
	local info = redis.call('INFO', 'replication')
	return string.find(info, 'role:master', 1, true) and string.match(info, 'master_replid:(%x+)') or 'replica'
end

-- An incarnation is this and when it was begun: FLUSHALL changes nothing of the server, but all leases are gone, and
-- each host must be told, also when another one has begun anew before it asks. Every grant looks here: so what is known is looked
-- for in the text, and nothing cut out of it.
local function is_of_this_server(incarnation)
	local id = string.sub(incarnation, 1, (string.find(incarnation, '-', 1, true) or 1) - 1)
	local info = redis.call('INFO', 'replication')
	return string.find(info, 'role:master', 1, true) ~= nil and
		string.find(info, 'master_replid:' .. id .. '\r', 1, true) ~= nil
end

-- Says whether the store is the one the caller knows, and whether it grants (open), and whether there is anything of the lock
-- (written), and the last fence. Whoever grants or vouches for a lease looks at the server itself (deep); for the others the
-- record is enough.
-- If a lock is missing that was written, somebody removed or evicted it: then the store has lost its memory.
local function known(deep)
	local record = redis.call('HMGET', STORE, 'inc', 'open', KEYS[3] or '', 'fence')
	if record[1] == ARGV[1] and record[3] == ARGV[1] and redis.call('EXISTS', KEYS[3]) == 0 then
		redis.call('HDEL', STORE, 'inc')
		return false
	end
	return record[1] == ARGV[1] and (not deep or is_of_this_server(ARGV[1])), record[2] == '1', record[3], record[4]
end

local function beat_of(host)
	return redis.call('HGET', HOSTS, host) or '0'
end

-- The beat is server time in ms, so that its age can be shown, but always more than before: clocks step.
local function raise_beat(host)
	redis.call('HSET', HOSTS, host, number(math.max(tonumber(beat_of(host)) + 1, now_ms())))
end
