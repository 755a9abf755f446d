-- In front of the scripts that read or change a lock: KEYS[3] is one packed value {l = leases, q = waiters}, both in
-- order of arrival, and does not exist when both are empty.
-- An entry: token, host, file (which inode of the host), space ('flock', 'record'), mode ('shared', 'exclusive'),
-- from, to (half open; 19 decimal digits each, so that comparing the strings compares the numbers: a double has
-- only 53 bits), a lease has fence, a waiter may have ask (it only asks and does not wait long) and pass
-- (it passes waiters).
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

-- Two files of one host are two owners: under one name they exclude each other as two hosts do.
local function clash(a, b)
	return a.space == b.space and (a.host ~= b.host or a.file ~= b.file) and
		(a.mode == 'exclusive' or b.mode == 'exclusive') and a.from < b.to and b.from < a.to
end

local function clashes(entry, list)
	for i = 1, #list do
		if clash(entry, list[i]) then
			return true
		end
	end
	return false
end

-- Drops what these hosts have. True if there was something.
local function drop_hosts(lock, dead)
	local dropped = false
	for _, which in ipairs({'l', 'q'}) do
		local kept = {}
		for _, e in ipairs(lock[which]) do
			if dead[e.host] then
				dropped = true
			else
				kept[#kept + 1] = e
			end
		end
		lock[which] = kept
	end
	return dropped
end

-- Makes leases of all waiters that clash with no lease and, unless they may pass, with no earlier waiter that still waits;
-- returns them.
local function hand_over(lock)
	local waiting, granted = {}, {}
	for _, w in ipairs(lock.q) do
		if clashes(w, lock.l) or (not w.pass and clashes(w, waiting)) then
			waiting[#waiting + 1] = w
		else
			lock.l[#lock.l + 1] = w
			granted[#granted + 1] = w
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

-- Those who still wait have told the hosts that were in their way, but not these. One waiter of each mode says it for all.
local function recall_new(lock, granted)
	for _, e in ipairs(granted) do
		local told = {}
		for _, w in ipairs(lock.q) do
			if clash(w, e) and (w.ask or not told[w.mode]) then
				told[w.mode] = told[w.mode] or not w.ask
				recall(w, e)
			end
		end
	end
end

-- Gives the new leases their fences, writes the lock, and tells their hosts (but not the one whose answer says so).
local function commit(lock, granted, answered)
	for _, e in ipairs(granted) do
		e.fence, e.ask, e.pass = redis.call('HINCRBY', STORE, 'fence', 1), nil, nil
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
