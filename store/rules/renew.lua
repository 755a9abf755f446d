-- Behind common.lua, in the scripts that renew: the beat of a host, and with it the keys of its leases.
-- A host that an operator has given up (give_up.lua) renews nothing until it has heard of that: each script that raises the beat of its host
-- ends at once with what not_now() answers. What a script renews, the host counts from when it asked: a script that went on would
-- let the host rely on leases that were swept.
-- The lease of a name whose rule has redis_key is also the lock of an ordinary key, as client libraries take it (key.lua).
-- Such a key is "FORMAT KEY" here:
--   string    the key holds the token of the lease (SET KEY TOKEN NX PX ttl_ms)
--   redisson  the key is a hash with one field, TOKEN:1 -> 1 (RLock's UUID:THREAD -> count)
-- Why a key does not end before its lease: it expires by the server's clock, ttl_ms after the script that took or renewed
-- it, or at least 19/20 of that (see below). The host counts 9/10 of ttl_ms, from before it sent what renewed, and stops
-- the holders before that. So if the server's clock does not gain a twentieth, no client finds the key free while the host
-- relies on it. What else can happen to a key is found out by the next beat: it is then put back, or the lease is lost.
-- What a host has of keys: hash: lock name -> "TOKEN FORMAT KEY" ("TOKEN lost KEY": it is lost, whatever becomes of the
-- key); and '' -> when all of them were renewed (server's ms)
local HELD_KEYS = string.sub(STORE, 1, -6) .. 'keys:'

-- Whose is the key? 'mine', 'free', 'theirs', or 'other': it is no lock of this format.
-- One call if it is 'mine', as nearly always: a beat asks for each key of the host.
local function key_state(format, key, token)
	local is_hash, got = format == 'redisson', nil
	if is_hash then
		got = redis.pcall('HEXISTS', key, token .. ':1')
	else
		got = redis.pcall('GETRANGE', key, 0, #token)
	end
	if got == 1 or got == token then -- mutant: key-token
		return 'mine'
	elseif type(got) == 'table' and not string.find(got.err, 'WRONGTYPE', 1, true) then -- again, so that the error is told
		if is_hash then
			redis.call('HEXISTS', key, '')
		end
		redis.call('GETRANGE', key, 0, 0)
	end
	local kind = redis.call('TYPE', key).ok
	return kind == 'none' and 'free' or type(got) == 'table' and 'other' or 'theirs'
end

local function key_set(format, key, token, ms)
	if format == 'redisson' then
		redis.call('DEL', key)
		redis.call('HSET', key, token .. ':1', 1)
		redis.call('PEXPIRE', key, ms)
	else
		redis.call('SET', key, token, 'PX', ms)
	end
end

-- Renews the keys of the host. With a list `told` (a beat) adds state, token, name to it for each key that was not ours
-- any more: 'back': it was gone, and is put back; else the lease is lost. Without one, only keys that are ours are renewed, and at most every twentieth of
-- ttl_ms: there may be one such script for each lease.
-- A key that has gone is put back only if it cannot have expired: a client may have had it since, and the holders relied on it all the time if
-- somebody deleted it, but were stopped if its time was over.
local function renew_keys(host, told)
	local held, now = HELD_KEYS .. host, now_ms()
	local at, ms = tonumber(redis.call('HGET', held, '')) or 0, tonumber(redis.call('HGET', STORE, 'ttl_ms'))
	if not told and now >= at and now - at < ms / 20 then
		return
	end
	local rows, all = redis.call('HGETALL', held), true
	for i = 1, #rows, 2 do
		local token, format, key = string.match(rows[i + 1], '^(%x+) (%a+) (.+)$')
		if format then
			local state = format ~= 'lost' and key_state(format, key, token) or 'lost'
			if state == 'mine' then
				redis.call('PEXPIRE', key, ms) -- mutant: key-renew
			elseif told and state == 'free' and now - at <= ms then -- mutant: key-expired
				key_set(format, key, token, ms)
				state = 'back'
			elseif told then
				redis.call('HSET', held, rows[i], token .. ' lost ' .. key)
			else
				all = false
			end
			if told and state ~= 'mine' then
				told[#told + 1] = state
				told[#told + 1] = token
				told[#told + 1] = rows[i]
			end
		end
	end
	if all then
		redis.call('HSET', held, '', number(now))
	end
end

-- With the first and the last answer of known(): nil, or what the script answers and does nothing else.
local function not_now(same, mark)
	return not same and {'INC'} or mark and {'GIVENUP', mark} or nil -- mutant: given-up-renews
end

-- The beat is server time in ms, so that its age can be shown, but always more than before: clocks step. Says whether the
-- host has keys.
local function raise_beat(host, told)
	redis.call('HSET', HOSTS, host, number(math.max(tonumber(beat_of(host)) + 1, now_ms())))
	if redis.call('EXISTS', HELD_KEYS .. host) == 1 then
		renew_keys(host, told)
		return true
	end
end
