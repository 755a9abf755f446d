#!lua flags=allow-oom
-- In grace, a holder whose deadline has not passed puts its lease back. ARGV 2 host  3 token  4 fence  5 file  6 space
-- 7 mode  8 from  9 to  10 key ('': none). Raises the host's beat.
-- Answers: OK fence mode, and key if it has one | GONE (grace is over and the lease is not there, a younger lease clashes with it, or a client
-- has its key) | GIVENUP mark (renew.lua) | INC
-- A lease in the way with an older fence was brought back by an old snapshot: its holder has lost it, or the caller
-- could not have got a younger fence. Requests that wait in a snapshot are dropped: a host that still waits asks
-- again.
local same, open, _, _, mark = known(true)
local stop = not_now(same, mark)
if stop then
	return stop
end
local lock = read_lock()
local lease = find(lock.l, ARGV[3])
if lease and number(lease.fence) == ARGV[4] then
	-- The snapshot may be older than the shrinking of this lease: other hosts may have got shared leases since.
	if ARGV[7] == 'shared' then -- mutant: reclaim-shared
		lease.mode = 'shared'
	end
	if lease.key and not key_stands(lock, lease, true) then
		return {'GONE'}
	end
	write_lock(lock)
	raise_beat(ARGV[2])
	return {'OK', ARGV[4], lease.mode, lease.key}
end
if open then
	return {'GONE'}
end
local mine = {token = ARGV[3], host = ARGV[2], fence = tonumber(ARGV[4]), file = ARGV[5], space = ARGV[6], mode = ARGV[7],
	from = ARGV[8], to = ARGV[9], job = '', key = ARGV[10] ~= '' and ARGV[10] or nil}
local kept, old = {}, {}
for _, e in ipairs(lock.l) do
	if clash(mine, e) and e.fence > mine.fence then -- mutant: reclaim-older
		return {'GONE'}
	elseif not clash(mine, e) and e.token ~= mine.token then
		kept[#kept + 1] = e
	else
		old[#old + 1] = e
	end
end
for _, e in ipairs(old) do -- the snapshot brought back their keys, too
	if e.key and e.token ~= mine.token then -- mutant: reclaim-old-key
		key_drop({l = kept}, e)
	end
end
if mine.key and not key_stands({l = kept}, mine, true) then -- clients know no grace
	return {'GONE'}
end
kept[#kept + 1] = mine
raise_beat(mine.host)
if mine.fence > tonumber(redis.call('HGET', STORE, 'fence')) and mine.fence < 2 ^ 52 then -- store.lua, MAX_FENCE
	redis.call('HSET', STORE, 'fence', number(mine.fence))
end
write_lock({l = kept, q = {}})
return {'OK', ARGV[4], mine.mode, mine.key}
