-- In front of the scripts that read or change a lock: KEYS[3] is one packed value {l = leases, q = waiters}, both in
-- order of arrival, and does not exist when both are empty.
-- An entry has token, host, file (which inode of the host), space ('flock', 'record'), mode ('shared', 'exclusive'),
-- from, to (half open; 19 decimal digits each, so that comparing the strings compares the numbers: a double has
-- only 53 bits). A lease also has fence. A waiter may have ask (it only asks and does not wait long) and pass
-- (it passes waiters). An entry with rest (ms) begins a rest when it is granted; one with key takes a key (key.lua). job says which program asked, for people
-- ('': not told; missing: its host is of an older version). take.lua writes such a value, too.
local BASE = string.sub(STORE, 1, -6) -- "dflock:{0}:store" without "store"
local NAME = string.sub(KEYS[3], #BASE + #'lock:' + 1)

local function read_lock()
	local packed = redis.call('GET', KEYS[3])
	if not packed then
		return {l = {}, q = {}}
	end
	local good, lock = pcall(cmsgpack.unpack, packed)
	if not good or type(lock) ~= 'table' or type(lock.l) ~= 'table' or type(lock.q) ~= 'table' then
		error('something else wrote ' .. KEYS[3] .. ': remove it', 0)
	end
	return lock
end

local function write_lock(lock)
	if #lock.l + #lock.q == 0 then
		redis.call('DEL', KEYS[3])
		redis.call('HDEL', STORE, KEYS[3])
	else
		redis.call('SET', KEYS[3], cmsgpack.pack(lock))
		redis.call('HSET', STORE, KEYS[3], ARGV[1])
	end
end

local function find(list, token)
	for i = 1, #list do
		if list[i].token == token then
			return list[i], i
		end
	end
end

-- A rest (at_least_ms): for so long after the grant of a lease, also after its end, nothing of the name and space is
-- granted to anybody. A field of one hash for each: "END MS FENCE": when it is over (server's ms), how long it is, and the fence of the
-- lease that began it. No keys that expire: a server that is short of memory drops those first (maxmemory-policy volatile-...).
-- No safety property: the server's clock is good enough.
local REST = {flock = KEYS[4], record = KEYS[5]}

-- How many ms are left (0: none), how many it has in all, and the fence. If the clock was set back, it begins anew: it lasts no longer than it should
-- by more than that.
local function rest_read(space)
	local till, ms, fence = string.match(redis.call('HGET', RESTS, REST[space]) or '', '^(%d+) (%d+) (%d+)$')
	local left = till and tonumber(till) - now_ms() or 0
	return math.max(left, 0), tonumber(ms or 0), fence
end

local function rest_write(space, ms, fence)
	redis.call('HSET', RESTS, REST[space], number(now_ms() + ms) .. ' ' .. number(ms) .. ' ' .. number(fence))
end

local function rest_left(space)
	local left, ms, fence = rest_read(space)
	if left > ms then
		rest_write(space, ms, fence)
	elseif left == 0 and fence then
		redis.call('HDEL', RESTS, REST[space])
	end
	return math.min(left, ms) -- mutant: rest-left
end

-- Begins the rest of a new lease. A few others are looked at each time, so those that are over never make up a large part.
local function rest_begin(e)
	local LOOK = 8
	local some, now = redis.call('HRANDFIELD', RESTS, LOOK, 'WITHVALUES'), now_ms()
	for i = 1, #some, 2 do
		if (tonumber(string.match(some[i + 1], '^%d+')) or 0) <= now then
			redis.call('HDEL', RESTS, some[i])
		end
	end
	rest_write(e.space, e.rest, e.fence)
end

-- Drops what these hosts have, and returns it.
local function drop_hosts(lock, dead)
	local dropped = {}
	for _, which in ipairs({'l', 'q'}) do
		local kept = {}
		for _, e in ipairs(lock[which]) do
			if dead[e.host] then
				dropped[#dropped + 1] = e
			else
				kept[#kept + 1] = e
			end
		end
		lock[which] = kept
	end
	for _, e in ipairs(dropped) do
		if e.key and e.fence then
			key_drop(lock, e)
		end
	end
	return dropped
end

-- The waiters that clash with an entry that has gone. All others still clash with what they clashed with before.
local function who_waits_for(gone, lock)
	local waits, count = {}, 0
	local what = collection(#gone, #lock.q, {gone, lock.q})
	for _, e in ipairs(gone) do
		what.add(e)
	end
	for _, w in ipairs(lock.q) do
		if what.first(w) then
			waits[w], count = true, count + 1
		end
	end
	return waits, count
end

-- w is the next. If a client has its key, or is to have it, its host is told to ask again, and learns for how long.
local function takes_key(lock, w, tells)
	local taken = not w.key or not key_take(lock, w, w.ask) -- mutant: key-hand-over
	if not taken and tells and not w.ask then -- mutant: key-again
		redis.call('PUBLISH', BASE .. 'host:' .. w.host, 'again ' .. w.token .. ' ' .. NAME)
	end
	return taken
end

-- These entries have gone. Makes leases of all waiters that clash with no lease and, unless they may pass, with no
-- earlier waiter that still waits; returns them. None in a space that rests: their hosts ask again when it is over.
-- None whose key a client has, or is to have.
local function hand_over(lock, gone)
	local waits, count = who_waits_for(gone, lock)
	if count == 0 then
		return {}
	end
	local held = collection(#lock.l + count, count, {lock.l, lock.q})
	local ahead = collection(#lock.q, count, {lock.q})
	local waiting, granted = {}, {}
	local rests = {flock = rest_left('flock') > 0, record = rest_left('record') > 0}
	for _, e in ipairs(lock.l) do
		held.add(e)
	end
	for _, w in ipairs(lock.q) do -- mutant: hand-over-order
		local is_next = waits[w] and not rests[w.space] and not held.first(w) and (w.pass or not ahead.first(w)) -- mutant: hand-over
		if is_next and takes_key(lock, w, gone ~= lock.q) then
			held.add(w)
			lock.l[#lock.l + 1] = w
			granted[#granted + 1] = w
		else
			ahead.add(w)
			waiting[#waiting + 1] = w
		end
	end
	lock.q = waiting
	return granted
end

-- Tells the host of lease e that w waits for it.
local function recall(w, e)
	redis.call('PUBLISH', BASE .. 'host:' .. e.host, table.concat(
		{'recall', e.token, w.host, w.token, w.space, w.mode, w.from, w.to, w.ask and '1' or '0', NAME}, ' '))
end

-- Recalls the new leases for the waiters, which have told only the hosts that were in their way before. The first
-- waiter of each mode speaks for all; waiters that only ask want an answer each, from the first lease of each mode.
local function recall_new(lock, granted)
	if #granted == 0 or #lock.q == 0 then
		return
	end
	local waiters, new = collection(#lock.q, #granted, {granted, lock.q}), collection(#granted, #lock.q, {granted, lock.q})
	for _, e in ipairs(granted) do
		new.add(e)
	end
	for _, w in ipairs(lock.q) do
		if not w.ask then
			waiters.add(w)
		end
	end
	for _, mode in ipairs({'exclusive', 'shared'}) do
		for _, e in ipairs(granted) do
			local w = waiters.first(e, mode)
			if w then
				recall(w, e)
			end
		end
		for _, w in ipairs(lock.q) do
			local e = w.ask and new.first(w, mode)
			if e then
				recall(w, e)
			end
		end
	end
end

-- Gives the new leases their fences, begins their rests, writes the lock, and tells their hosts (but not that of the token `answered`,
-- which learns it from the script's answer).
local function commit(lock, granted, answered)
	for _, e in ipairs(granted) do
		e.fence, e.ask, e.pass = redis.call('HINCRBY', STORE, 'fence', 1), nil, nil
		if e.rest then
			rest_begin(e)
		end
	end
	write_lock(lock)
	for _, e in ipairs(granted) do
		if e.token ~= answered then
			redis.call('PUBLISH', BASE .. 'host:' .. e.host,
				'granted ' .. e.token .. ' ' .. number(e.fence) .. ' ' .. ARGV[1] .. ' ' .. NAME)
		end
	end
	recall_new(lock, granted)
end
