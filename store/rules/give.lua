-- In front of release.lua, before clashes.lua and entries.lua: what most releases are. The only lease of a lock goes back,
-- and no request waits, or one does and gets it; or the only waiter gives up; without a key. All other cases, and whatever looks strange,
-- are left to release.lua, which reads the lock anew: this writes nothing before it is sure, and then returns. It does not
-- need the functions of those files, and to define them would take the server longer than all of this.
do
	local SMALL = 4096 -- bytes: no more than a few entries, which are read twice if they are too many
	local record = redis.call('HMGET', STORE, 'inc', 'open', KEYS[3], 'fence')
	local packed = record[1] == ARGV[1] and record[3] == ARGV[1] and redis.call('GET', KEYS[3])
	local good, lock = pcall(cmsgpack.unpack, packed and #packed <= SMALL and packed or '')
	good = good and type(lock) == 'table' and type(lock.l) == 'table' and type(lock.q) == 'table'
	local has_key = good and (lock.l[1] and lock.l[1].key or lock.q[1] and lock.q[1].key) -- mutant: give-key
	if good and #lock.l == 1 and #lock.q <= 1 and not has_key then
		local e, w = lock.l[1], lock.q[1]
		if e.token == ARGV[2] and not e.rest and not w then
			redis.call('DEL', KEYS[3])
			redis.call('HDEL', STORE, KEYS[3])
			return {'OK'}
		end
		if w and w.token == ARGV[2] then
			lock.q = {}
			redis.call('SET', KEYS[3], cmsgpack.pack(lock))
			return {'OK'}
		end
		-- They clash as clash() says it, and nothing rests or begins a rest.
		if w and e.token == ARGV[2] and not e.rest and not w.rest and e.space == w.space and
			(e.mode == 'exclusive' or w.mode == 'exclusive') and e.from < w.to and w.from < e.to and
			(e.host ~= w.host or e.file ~= w.file) and record[2] == '1' and -- mutant: give-grace
			not may_rest() and -- mutant: give-rest
			is_of_this_server(ARGV[1]) then -- mutant: give-server
			w.fence, w.ask, w.pass = (record[4] or 0) + 1, nil, nil
			redis.call('SET', KEYS[3], cmsgpack.pack({l = {w}, q = {}}))
			redis.call('HSET', STORE, 'fence', number(w.fence)) -- mutant: give-fence
			local base = string.sub(STORE, 1, -6) -- "dflock:{0}:store" without "store"
			redis.call('PUBLISH', base .. 'host:' .. w.host, 'granted ' .. w.token .. ' ' .. number(w.fence) .. ' ' ..
				ARGV[1] .. ' ' .. string.sub(KEYS[3], #base + #'lock:' + 1))
			return {'OK'}
		end
	end
end
