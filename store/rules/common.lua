-- In front of every script.
-- KEYS[1] the store's record (hash: inc, open, ttl_ms, fence, first, earlier; and the key of each lock that exists
-- -> the incarnation in which it was written)
-- KEYS[2] the hosts (hash: host -> beat)
-- KEYS[3] the lock, for scripts that work on one; KEYS[4], KEYS[5] are no keys: the fields of its rests (entries.lua), one for each space
-- ARGV[1] the incarnation that the caller knows
-- Numbers whose exact value matters stay below 2^53 and are written with %.0f: a Lua number is a double, and tostring()
-- rounds it.
local STORE, HOSTS = KEYS[1], KEYS[2]
local RESTS = string.sub(STORE, 1, -6) .. 'rests' -- "dflock:{0}:store" without "store"

local function number(n)
	return string.format('%.0f', n)
end

local function now_us()
	local t = redis.call('TIME')
	return t[1] * 1000000 + t[2]
end

local function now_ms()
	return math.floor(now_us() / 1000)
end

-- Says which data this server has. A master's replication id is new at every start and at every promotion; a master
-- that was demoted and comes back keeps its run id but not this one. A replica shows its master's, so that must not
-- count. A connection may survive all of these events, so each script looks.
local function identity()
	local info = redis.call('INFO', 'replication')
	return string.find(info, 'role:master', 1, true) and string.match(info, 'master_replid:(%x+)') or 'replica'
end

-- An incarnation is that identity and the time when it was begun: FLUSHALL does not change the identity, but all
-- leases are gone, and each host must be told, also when another host has begun a new incarnation before it asks.
-- Every grant comes through here: to search the text for the known id is faster than to cut the id out of it.
local function is_of_this_server(incarnation)
	local id = string.sub(incarnation, 1, (string.find(incarnation, '-', 1, true) or 1) - 1)
	local info = redis.call('INFO', 'replication')
	return string.find(info, 'role:master', 1, true) ~= nil and
		string.find(info, 'master_replid:' .. id .. '\r', 1, true) ~= nil
end

-- Answers five questions: is the store the one the caller knows; does it grant (open); was the lock written (the
-- incarnation in which it was, or false); the last fence; the mark of the host in ARGV[2], if it was given up (renew.lua). A script that grants a lease, or says that one stands,
-- looks at the server itself (deep); for the others the record is enough. If a lock that was written is missing, a
-- person or the server's eviction removed it: then the store has lost its memory.
local function known(deep)
	local record = redis.call('HMGET', STORE, 'inc', 'open', KEYS[3] or '', 'fence', 'given:' .. (ARGV[2] or ''))
	if record[1] == ARGV[1] and record[3] == ARGV[1] and redis.call('EXISTS', KEYS[3]) == 0 then
		redis.call('HDEL', STORE, 'inc')
		return false
	end
	return record[1] == ARGV[1] and (not deep or is_of_this_server(ARGV[1])), record[2] == '1', record[3], record[4], record[5]
end

-- Is there a rest of the name? It may be over.
local function may_rest()
	local rests = redis.call('HMGET', RESTS, KEYS[4], KEYS[5])
	return rests[1] or rests[2]
end

local function beat_of(host)
	return redis.call('HGET', HOSTS, host) or '0'
end

-- Each beat moves a host to another seat, a random number that the keeper has drawn for it. A keeper that knows neither the seat of
-- its host nor the next one uses the host's id beside another keeper (store.h). Seats of another incarnation are void. A host that has none gets
-- one if it may. False: another keeper uses the id.
local function sit(incarnation, host, seat, next, may)
	local field = 'seat:' .. host
	local had = redis.call('HGET', STORE, field)
	had = had and string.sub(had, 1, #incarnation + 1) == incarnation .. ' ' and had -- mutant: seat-incarnation
	if had and had ~= incarnation .. ' ' .. seat and had ~= incarnation .. ' ' .. next then -- mutant: seat
		return false
	end
	if had or may then
		redis.call('HSET', STORE, field, incarnation .. ' ' .. next)
	end
	return true
end
