-- In front of acquire.lua, before clashes.lua and entries.lua: what most requests are. A lock that no host has or waits for is
-- granted; or one lease is in the way, for which no request waits: then this one does, and the host that has the lease is
-- told. Without a key, where nothing rests or begins a rest, and no host is called dead. All other cases, and whatever looks strange, are left to
-- acquire.lua, which reads the lock anew: this writes nothing before it is sure, and then returns. It does not need the
-- functions of those files, and to define them would take the server longer than all of this.
local same, open, written, fence, mark = known(true)
local stop = not_now(same, mark)
if stop then
	return stop
end
if not open then
	return {'GRACE'}
end
local plain = ARGV[13] == '0' and ARGV[15] == '' and #ARGV < 16 and -- mutant: take-plain
	not may_rest() -- mutant: take-rest
if not written and plain then
	local from, to = ARGV[7], ARGV[8]
	if ARGV[12] == '1' then
		from, to = '0000000000000000000', '9223372036854775807'
	end
	fence = (fence or 0) + 1
	local lock = cmsgpack.pack({q = {}, l = {{token = ARGV[4], host = ARGV[2], file = ARGV[3], space = ARGV[5],
		mode = ARGV[6], from = from, to = to, fence = fence, job = ARGV[14]}}})
	if redis.call('SET', KEYS[3], lock, 'NX') then -- else something else wrote there
		redis.call('HSET', STORE, 'fence', number(fence), KEYS[3], ARGV[1])
		if ARGV[11] == '1' then
			raise_beat(ARGV[2])
		end
		if from ~= ARGV[7] or to ~= ARGV[8] then
			return {'OK', number(fence), ARGV[6], from, to}
		end
		return {'OK', number(fence), ARGV[6]}
	end
end
if written == ARGV[1] and plain then
	local SMALL = 4096 -- bytes: no more than a few entries, which are read twice if they are too many
	local packed = redis.call('GET', KEYS[3])
	local good, lock = pcall(cmsgpack.unpack, packed and #packed <= SMALL and packed or '')
	good = good and type(lock) == 'table' and type(lock.l) == 'table' and type(lock.q) == 'table'
	local e = good and #lock.l == 1 and #lock.q == 0 and lock.l[1]
	local w = {token = ARGV[4], host = ARGV[2], file = ARGV[3], space = ARGV[5], mode = ARGV[6], from = ARGV[7], to = ARGV[8],
		job = ARGV[14], ask = ARGV[9] ~= '0' or nil, pass = ARGV[10] == '1' or nil}
	-- They clash as clash() says it.
	if e and e.token ~= w.token and not e.rest and not e.key and e.space == w.space and
		(e.mode == 'exclusive' or w.mode == 'exclusive') and e.from < w.to and w.from < e.to and
		(e.host ~= w.host or e.file ~= w.file) then -- mutant: take-owner
		if ARGV[11] == '1' then
			raise_beat(w.host) -- mutant: take-beat
		end
		lock.q[1] = w
		redis.call('SET', KEYS[3], cmsgpack.pack(lock))
		local base = string.sub(STORE, 1, -6) -- "dflock:{0}:store" without "store"
		redis.call('PUBLISH', base .. 'host:' .. e.host, table.concat({'recall', e.token, w.host, w.token, w.space, w.mode,
			w.from, w.to, w.ask and '1' or '0', string.sub(KEYS[3], #base + #'lock:' + 1)}, ' '))
		local beat = beat_of(e.host)
		return {'WAIT', number(now_us()), e.host, beat,
			beat == '0' and '0' or number(now_ms() - beat), 'holds'}
	end
end
