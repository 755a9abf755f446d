#!lua flags=allow-oom
-- Renews all leases of a host: hosts that wait for one of them see its beat move. ARGV 2 host  3 mark: what the last
-- GIVENUP told it; 0: none  4 how many leases with a key (renew.lua) the host knows of  5 seat  6 next seat (common.lua)
-- Answers: OK | KEYS, then for each key that is not as the host thinks: what, token, lock name. what: 'back' (it was gone, and was
-- put back) or 'extra' (the host may not know of this lease); else the lease is lost: 'theirs' (a client has the key), 'free' (it
-- expired), 'other' (it is no lock any more) or 'lost' (one of these, at an earlier beat) | GIVENUP mark (an operator has given the host up, give_up.lua: nothing is renewed until the host has
-- doubted all its leases, and sends this mark) | TWICE (another keeper uses this host's id) | INC
local same, _, _, _, mark = known(true)
if same and mark and mark == ARGV[3] then
	redis.call('HDEL', STORE, 'given:' .. ARGV[2])
	mark = nil
end
local stop = not_now(same, mark)
if stop then
	return stop
end
-- Behind that: a host that was given up has no seat (leave.lua), and a beat of long ago that is executed late would give it one.
if ARGV[6] and not sit(ARGV[1], ARGV[2], ARGV[5], ARGV[6], true) then
	return {'TWICE'}
end
local told, held = {'KEYS'}, HELD_KEYS .. ARGV[2]
if not raise_beat(ARGV[2], told) then
	return {'OK'}
end
-- A request that was executed late may have granted a lease that the host has given up: it would keep the key from all clients.
if redis.call('HLEN', held) - 1 > tonumber(ARGV[4]) then -- mutant: key-extra
	local rows = redis.call('HGETALL', held)
	for i = 1, #rows, 2 do
		if rows[i] ~= '' then
			told[#told + 1] = 'extra'
			told[#told + 1] = string.match(rows[i + 1], '^%x+')
			told[#told + 1] = rows[i]
		end
	end
end
return #told > 1 and told or {'OK'}
