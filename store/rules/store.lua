#!lua flags=allow-oom
-- The incarnation record. ARGV 2 what  3 TTL or TTL/SHARDS: what all hosts must have in common, ttl_ms and, if this is a shard, how many
-- there are, which the record has as its ttl_ms (so that a keeper that knows no shards reads none); ARGV 1 may be empty: the caller knows none
--   begin: if the record is missing, of another server, or does not continue what the caller knows, records a new
--          incarnation; nothing is granted until it is opened
--   open:  ends the grace of ARGV[1]: the caller has watched it for one ttl
--   new:   opens the store of ARGV[1] before that, if nothing is known of an earlier memory of it: no host came from another
--          incarnation (ARGV 4: one that the caller has known, or ''), and none has put a lease back. Decided here, since
--          hosts put back their leases at the same time: a reclaim after this one is answered GONE, and one before it is
--          seen here
--   init:  opens at once, whatever is known, and sets ttl_ms. Another one, or another number of shards, begins a new incarnation, so that
--          hosts with the old one find out, and is refused while there are such hosts: those that watch the beats for a shorter time
--          would call them dead, while they hold locks; and others look for their names in other shards. Fewer shards are refused where
--          locks were granted, since those that are left out would not be asked
--   take:  the same, but opens nothing: where there are shards, all have the new number before one is open (host.h)
--   may:   would that be refused? Writes nothing
-- ARGV 5: the largest fence that the caller has seen (a host of an earlier version tells none). Each host comes here when it meets an
-- incarnation, mostly in its grace, when nothing is granted: so what is granted then has larger fences than any host has told
-- begin has the host, its seat and the next one, too (ARGV 6 to 8, common.lua): a keeper asks for nothing else before this
-- Answers: OK incarnation open fence | TWICE (another keeper uses this host's id) | TTL what the record has, hosts (all must use the same:
-- deadlines are counted with it; init, take and may: which hosts use it, else '') | MAY | INC | KNOWN text (new: what is known)
local MAX_EARLIER, MAX_NAMED = 16, 3
local MAX_FENCE = 2 ^ 52 -- a told fence from here on was made up (the clock's are below until 2112): from 2^53 on doubles are not exact
local record = redis.call('HMGET', STORE, 'inc', 'open', 'ttl_ms', 'fence', 'earlier')
local caller, what, ttl_ms = ARGV[1], ARGV[2], ARGV[3]
local sets = what == 'init' or what == 'take' or what == 'may' -- or would set what all hosts must have in common
local inc, open, fence = record[1], record[2], record[4] or '0'

-- The incarnations before this one, newest first. A server that does not know the caller's incarnation has another
-- past: the address has just begun to lead to it, and hosts have leases that this server never had, or has kept from
-- an earlier time.
local earlier = {}
for word in string.gmatch(record[5] or '', '%S+') do
	earlier[#earlier + 1] = word
end
local function knows(incarnation)
	for _, word in ipairs(earlier) do
		if word == incarnation then
			return true
		end
	end
	return incarnation == '' or incarnation == inc
end

local same = inc and is_of_this_server(inc) and (what ~= 'begin' or knows(caller))
if identity() == 'replica' then -- a replica that can be written
	return redis.error_reply('READONLY this server is a replica')
end
if (what == 'open' or what == 'new') and not (same and inc == ARGV[1]) then
	return {'INC'}
end
if record[3] and record[3] ~= ttl_ms then
	local alive, count, named = {}, 0, {}
	if sets then
		alive = redis.call('HGETALL', HOSTS)
	end
	local function part(text, pattern)
		return tonumber(string.match(text, pattern) or '1')
	end
	local since = now_ms() - math.max(part(record[3], '^%d+'), part(ttl_ms, '^%d+'))
	for i = 1, #alive, 2 do
		if (tonumber(alive[i + 1]) or 0) > since then
			count = count + 1
			named[#named + 1] = count <= MAX_NAMED and alive[i] or nil
		end
	end
	if not sets or count > 0 or (open == '1' and part(record[3], '/(%d+)') > part(ttl_ms, '/(%d+)')) then -- mutant: shard-fewer
		return {'TTL', record[3], table.concat(named, ', ') .. (count > MAX_NAMED and ', ...' or '')}
	end
	same = false
end
if what == 'may' then
	return {'MAY'}
end

-- The leases that hosts have put back: the number of locks, and name and hosts of some of them.
local function put_back()
	local count, named, key = 0, {}, string.sub(STORE, 1, -6) .. 'lock:'
	for _, field in ipairs(redis.call('HKEYS', STORE)) do
		if string.sub(field, 1, #key) == key then
			count = count + 1
			local packed = count <= MAX_NAMED and redis.call('GET', field)
			local good, lock = pcall(cmsgpack.unpack, packed or '')
			local hosts = {}
			for _, e in ipairs(good and type(lock) == 'table' and lock.l or {}) do
				hosts[#hosts + 1] = #hosts < MAX_NAMED and e.host or nil
			end
			if packed then
				named[#named + 1] = string.sub(field, #key + 1) .. ' of ' .. table.concat(hosts, ', ')
			end
		end
	end
	return count, table.concat(named, '; ') .. (count > MAX_NAMED and '; ...' or '')
end
if what == 'new' and open ~= '1' then
	local before = ARGV[4] ~= '' and ARGV[4] or earlier[1]
	local count, named = put_back()
	local text = 'there was an earlier memory of it' .. (before and ' (' .. before .. ')' or '')
	if count > 0 then
		text = text .. ', and hosts have put back leases of ' .. number(count) .. (count == 1 and ' lock (' or ' locks (') ..
			named .. ')'
	end
	if before or count > 0 then
		return {'KNOWN', text}
	end
end
-- No fence is ahead of a clock that goes on: there is room for 1,024 grants per ms (until the year 2248). So one that is not below `least` shows
-- that the clock went back, or is another one's; and hosts that are gone, or the replica that was promoted, may not have told of some grants more.
-- Only then: a fence that is ahead of the clock is in danger where no host knows it.
local function beyond(known, least)
	return known >= least and known + 2 ^ 32 or least -- mutant: fence-ahead
end
local told = tonumber(ARGV[5]) or 0
told = told < MAX_FENCE and told or 0
-- A host that knows this incarnation has told before what it had seen of earlier ones.
if same and caller ~= inc then
	fence = number(beyond(told, tonumber(fence) or 0))
end
if not same then
	local t = redis.call('TIME')
	if not knows(caller) then
		table.insert(earlier, 1, caller)
	end
	if inc then
		table.insert(earlier, 1, inc)
	end
	inc, open = identity() .. '-' .. t[1] .. '-' .. t[2], '0' -- mutant: new-memory
	fence = number(beyond(told, beyond(tonumber(fence) or 0, now_ms() * 1024)))
	redis.call('HSET', STORE, 'first', fence) -- what an earlier incarnation granted is below that
end
-- It moves a seat and gives none: a begin of long ago would leave the host, in an incarnation that others have made since or after it was given up
-- (leave.lua), a seat that its keeper does not know. A beat of long ago names an incarnation that is over; so the host's first beat gives it one.
if what ~= 'begin' and what ~= 'take' then -- mutant: take-opens
	open = '1'
elseif ARGV[8] and not sit(inc, ARGV[6], ARGV[7], ARGV[8], false) then -- mutant: seat-begin
	return {'TWICE'}
end
-- Always, so that there is a write that replicas can acknowledge.
redis.call('HSET', STORE, 'inc', inc, 'open', open, 'ttl_ms', ttl_ms, 'fence', fence, 'earlier',
	table.concat(earlier, ' ', 1, math.min(#earlier, MAX_EARLIER)))
return {'OK', inc, open, fence}
