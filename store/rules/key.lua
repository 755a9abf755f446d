-- In front of entries.lua: the key of a lease whose rule has redis_key (renew.lua says what such a key is). Nothing here is
-- called for other leases. An entry has key ("FORMAT KEY"), and a lease with a key has run: since when (server's ms)
-- dflock's leases have had the key one after the other.
-- Why there is no moment in which both worlds have the lock, and none between the lease and the key: a lease with a key is
-- granted only in a script that finds the key free and sets it, or finds there the token of the same owner's lease in the other
-- space; and it leaves the lock only in a script that removes the key if the token in it is its own.
-- Clients cannot say that they wait: most ask again after 10 to 250 ms. So that they get their turn, waiting leases do not follow
-- each other for ever: after TURN_MS the key is left free for PAUSE_MS. A request that only asks does not count: it must not be told
-- that the lock is taken when nobody has it.
local TURN_MS, PAUSE_MS = 1000, 200
local KEY_NAME = string.sub(KEYS[3], #HELD_KEYS - #'keys:' + #'lock:' + 1)
local TURN = string.sub(STORE, 1, -6) .. 'turn:' .. KEY_NAME -- since when they followed each other; expires after PAUSE_MS

local function key_split(e)
	return string.match(e.key, '^(%a+) (.+)$')
end

local function key_hold(e, format, key)
	local held = HELD_KEYS .. e.host
	redis.call('HSET', held, KEY_NAME, e.token .. ' ' .. format .. ' ' .. key)
	redis.call('HSETNX', held, '', number(now_ms()))
end

-- The lease of the same owner, in the other space, whose token is in the key.
local function key_sibling(lock, e, format, key)
	for _, other in ipairs(lock.l) do
		if other.key == e.key and other.token ~= e.token and other.host == e.host and other.file == e.file and
			key_state(format, key, other.token) == 'mine' then
			return other
		end
	end
end

-- For people: the first bytes of what is in the key, with whose token nobody can unlock it.
local function key_holder(format, key)
	local who = format == 'redisson' and redis.call('HRANDFIELD', key) or redis.call('GETRANGE', key, 0, 15)
	return (string.gsub(string.sub(who, 1, 8), '[^!-~]', '?'))
end

-- Takes the key for e, which is to become a lease. nil: e has it. Else {left (ms; -1: without end), who ('': nobody; it is left free for
-- clients), wrong (an error: it is no such lock)}.
local function key_take(lock, e, asks)
	local format, key = key_split(e)
	local state = key_state(format, key, e.token)
	local now, run = now_ms(), tonumber(redis.call('GET', TURN))
	if state == 'other' then
		return {wrong = 'KEYTYPE the key ' .. key .. ' is a ' .. redis.call('TYPE', key).ok}
	elseif state == 'theirs' then
		local sibling = key_sibling(lock, e, format, key)
		if sibling then
			e.run = sibling.run
			return nil
		end
		return {left = redis.call('PTTL', key), who = key_holder(format, key)}
	elseif run and not asks and now - run >= TURN_MS then -- mutant: key-turn
		return {left = math.max(redis.call('PTTL', TURN), 1), who = ''}
	end
	e.run = run and run <= now and run or now
	key_set(format, key, e.token, redis.call('HGET', STORE, 'ttl_ms'))
	key_hold(e, format, key)
	return nil
end

-- e was a lease, and is no longer in the lock. The key goes to the owner's lease in the other space, or becomes free.
local function key_drop(lock, e)
	local format, key = key_split(e)
	local held = HELD_KEYS .. e.host
	if string.match(redis.call('HGET', held, KEY_NAME) or '', '^%x+') == e.token then
		redis.call('HDEL', held, KEY_NAME)
		if redis.call('HLEN', held) == 1 then
			redis.call('DEL', held)
		end
	end
	if key_state(format, key, e.token) ~= 'mine' then -- mutant: key-drop
		return
	end
	for _, other in ipairs(lock.l) do
		if other.key == e.key and other.host == e.host and other.file == e.file then
			key_set(format, key, other.token, redis.call('HGET', STORE, 'ttl_ms'))
			key_hold(other, format, key)
			return
		end
	end
	redis.call('DEL', key)
	redis.call('SET', TURN, number(e.run or now_ms()), 'PX', PAUSE_MS)
	if format == 'redisson' then -- wakes the clients that wait, as its unlock() does
		redis.call('PUBLISH', string.find(key, '{', 1, true) and 'redisson_lock__channel:' .. key or
			'redisson_lock__channel:{' .. key .. '}', '0')
	end
end

-- The lock knows no such token. If the host still has a key with it (a lock that was removed by hand), that key would be
-- renewed for ever.
local function key_forget(lock, host, token)
	local was, key = string.match(redis.call('HGET', HELD_KEYS .. host, KEY_NAME) or '', '^(%x+) (.+)$')
	if was == token then
		key_drop(lock, {host = host, token = token, key = key})
	end
end

-- Is the key that of this lease? If nobody has it, and may_put, it is put there.
local function key_stands(lock, e, may_put)
	local format, key = key_split(e)
	local state = key_state(format, key, e.token)
	if state == 'free' and may_put then -- mutant: key-back
		key_set(format, key, e.token, redis.call('HGET', STORE, 'ttl_ms'))
	elseif state == 'theirs' and key_sibling(lock, e, format, key) then
		return true
	elseif state ~= 'mine' then
		return false
	end
	if may_put then
		key_hold(e, format, key)
	end
	return true
end
