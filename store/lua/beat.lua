#!lua flags=allow-oom
-- Renews all leases of a host: hosts that wait for one of them see its beat move. ARGV 2 host  3 mark: what the last
-- GIVENUP told it; 0: none
-- Answers: OK | GIVENUP mark (an operator has given the host up, give_up.lua: nothing is renewed until the host has
-- doubted all its leases, and sends this mark) | INC
if not known(true) then
	return {'INC'}
end
local field = 'given:' .. ARGV[2]
local mark = redis.call('HGET', STORE, field)
if mark and mark ~= ARGV[3] then
	return {'GIVENUP', mark}
elseif mark then
	redis.call('HDEL', STORE, field)
end
raise_beat(ARGV[2])
return {'OK'}
