-- In front of acquire.lua, before clashes.lua and entries.lua: grants a lock that no host has or waits for, and that
-- neither rests nor begins a rest nor has a key, as most are. It does not need the functions of those files, and to define them would take the server longer than all of
-- this.
local same, open, written, fence = known(true)
if not same then
	return {'INC'}
end
if not open then
	return {'GRACE'}
end
if not written and ARGV[13] == '0' and ARGV[15] == '' and redis.call('EXISTS', KEYS[4], KEYS[5]) == 0 then
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
