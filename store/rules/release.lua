#!lua flags=allow-oom
-- Gives a lease back, or cancels a waiting request, and hands over. ARGV 2 token  3 unused ('1': no caller was ever told
-- of this lease, so the rest that it began ends)  4 host
-- Answers: OK (also for a token that is not there) | INC
if not known(false) then
	return {'INC'}
end
local lock = read_lock()
local gone = {}
for _, list in ipairs({lock.l, lock.q}) do
	local _, place = find(list, ARGV[2])
	if place then
		local e = table.remove(list, place)
		gone[#gone + 1] = e
		-- mutant: rest-unused
		if ARGV[3] == '1' and e.rest and e.fence and select(3, rest_read(e.space)) == number(e.fence) then
			redis.call('HDEL', RESTS, REST[e.space])
		end
		if e.key and e.fence then
			key_drop(lock, e)
		end
	end
end
if #gone == 0 then
	key_forget(lock, ARGV[4], ARGV[2])
	return {'OK'}
end
local granted = {}
if #lock.q > 0 then
	local same, open = known(true)
	if not same then
		return {'INC'}
	end
	granted = open and hand_over(lock, gone) or {}
end
commit(lock, granted)
return {'OK'}
