-- What the rules find of Redis where they run in this process (replay.h): redis.call() for the commands that they
-- use, and cmsgpack. All that is stored consists of cells. A key's cell '$' is its string, '=FIELD' is a field of its
-- hash, and '!' is when it expires (server's ms). The values are text; no value: there is no such cell.
--   get(run, key, cell)        the value; want(run, key, cell...) has several loaded at once
--   set(run, key, cell, value)
--   fields(run, key)           of its hash: field, value, ... in a list
--   some(run, key)             the same for a few, whichever they are
--   page(run, cursor)          of the keys that are strings: the next cursor ('0': that was all), then the keys
--   say(run, channel, text), time(run), identity(run)
-- Keys of clients (redis_key) are not here: no configuration can ask for them. What the rules would do for one has no
-- command here.
local get, want, set, fields, some, page, say, time, identity = ...
local KEYS_OF_CLIENTS = '^dflock:{0}:keys:'
local EXPIRES = '^dflock:{0}:rules' -- keys that may expire
local commands = {}

local function now_ms(run)
	local seconds, micros = time(run)
	return seconds * 1000 + micros // 1000
end

-- Clears a key whose time is over.
local function fresh(run, key)
	local till = string.find(key, EXPIRES) and get(run, key, '!') -- mutant: replay-expires
	if not till or tonumber(till) > now_ms(run) then
		return
	end
	set(run, key, '!', nil)
	set(run, key, '$', nil)
	local rows = key == 'dflock:{0}:rules' and fields(run, key) or {}
	for i = 1, #rows, 2 do
		set(run, key, '=' .. rows[i], nil)
	end
end

local function every(rows, from)
	local out = {}
	for i = from, #rows, 2 do
		out[#out + 1] = rows[i]
	end
	return out
end

function commands.GET(run, key)
	return get(run, key, '$') or false
end

function commands.SET(run, key, value, option)
	if option == 'NX' and get(run, key, '$') then
		return false
	elseif option ~= nil and option ~= 'NX' and option ~= 'KEEPTTL' then
		error('SET ' .. option)
	end
	set(run, key, '$', value)
	return {ok = 'OK'}
end

function commands.DEL(run, key)
	set(run, key, '$', nil)
	return 1
end

function commands.EXISTS(run, key)
	return not string.find(key, KEYS_OF_CLIENTS) and get(run, key, '$') and 1 or 0
end

function commands.STRLEN(run, key)
	return #(get(run, key, '$') or '')
end

-- Only to find out whether the store can be written: nothing at the beginning of a key that does not exist.
function commands.SETRANGE(run, key)
	set(run, key, '$', nil)
	return 0
end

function commands.HGET(run, key, field)
	return get(run, key, '=' .. field) or false
end

function commands.HMGET(run, key, ...)
	local names, out = {...}, {}
	for i = 1, #names do
		names[i] = '=' .. names[i]
	end
	want(run, key, table.unpack(names))
	for i = 1, #names do
		out[i] = get(run, key, names[i]) or false
	end
	return out
end

function commands.HSET(run, key, ...)
	local words = {...}
	for i = 1, #words, 2 do
		set(run, key, '=' .. words[i], words[i + 1])
	end
	return 0
end

function commands.HDEL(run, key, field)
	set(run, key, '=' .. field, nil)
	return 0
end

function commands.HINCRBY(run, key, field, by)
	local value = math.tointeger(get(run, key, '=' .. field) or 0) + by
	set(run, key, '=' .. field, value)
	return value
end

function commands.HEXISTS(run, key, field)
	return get(run, key, '=' .. field) and 1 or 0
end

function commands.HGETALL(run, key)
	return fields(run, key)
end

function commands.HKEYS(run, key)
	return every(fields(run, key), 1)
end

function commands.HLEN(run, key)
	return #fields(run, key) // 2
end

function commands.HRANDFIELD(run, key)
	return some(run, key)
end

function commands.PTTL(run, key)
	local till = get(run, key, '!')
	return till and tonumber(till) - now_ms(run) or -1
end

function commands.PEXPIRE(run, key, ms)
	set(run, key, '!', now_ms(run) + math.tointeger(ms))
	return 1
end

function commands.SCAN(run, cursor)
	local keys = page(run, cursor)
	return {table.remove(keys, 1), keys}
end

function commands.TIME(run)
	local seconds, micros = time(run)
	return {tostring(seconds), tostring(micros)}
end

function commands.INFO(run)
	return 'role:master\r\nmaster_replid:' .. identity(run) .. '\r\n'
end

function commands.PUBLISH(run, channel, text)
	say(run, channel, text)
	return 0
end

-- ---- cmsgpack: a format of our own, for what a lock consists of. Reading checks each length.

local pack_one

local function pack_table(out, t)
	if #t > 0 or next(t) == nil then
		out[#out + 1] = string.pack('<c1I4', 'a', #t)
		for i = 1, #t do
			pack_one(out, t[i])
		end
		return
	end
	local at, count = #out + 1, 0
	out[at] = ''
	for name, value in pairs(t) do
		count = count + 1
		pack_one(out, name)
		pack_one(out, value)
	end
	out[at] = string.pack('<c1I4', 'm', count)
end

function pack_one(out, value)
	local kind = math.type(value) or type(value)
	if kind == 'table' then
		pack_table(out, value)
	elseif kind == 'string' then
		out[#out + 1] = string.pack('<c1s4', 's', value)
	elseif kind == 'integer' then
		out[#out + 1] = string.pack('<c1i8', 'i', value)
	elseif kind == 'float' then
		out[#out + 1] = string.pack('<c1d', 'd', value)
	elseif kind == 'boolean' then
		out[#out + 1] = value and 't' or 'f'
	else
		error('a ' .. kind .. ' cannot be packed')
	end
end

local PLAIN = {s = '<s4', i = '<i8', d = '<d'}
local function unpack_one(text, at, depth)
	local kind, value, name = string.sub(text, at, at), nil, nil
	at = at + 1
	if PLAIN[kind] then
		return string.unpack(PLAIN[kind], text, at)
	elseif kind == 't' or kind == 'f' then
		return kind == 't', at
	elseif (kind ~= 'a' and kind ~= 'm') or depth == 8 then
		error('this was not packed here')
	end
	local out, count = {}, nil
	count, at = string.unpack('<I4', text, at)
	for i = 1, count do
		name = i
		if kind == 'm' then
			name, at = unpack_one(text, at, depth + 1)
		end
		value, at = unpack_one(text, at, depth + 1)
		out[name] = value
	end
	return out, at
end

local cmsgpack = {
	pack = function(value)
		local out = {}
		pack_one(out, value)
		return table.concat(out)
	end,
	unpack = function(text)
		local value, at = unpack_one(text, 1, 1)
		if at ~= #text + 1 then
			error('more than was packed here')
		end
		return value
	end,
}

-- What a rule is called with, behind KEYS and ARGV.
return function(run)
	local function call(name, key, ...)
		local command = commands[name]
		if not command then
			error('the rules have no command ' .. name .. ' here')
		end
		if key then
			fresh(run, key)
		end
		return command(run, key, ...)
	end
	return {call = call, error_reply = function(text) return {err = text} end}, cmsgpack
end
