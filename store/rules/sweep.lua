#!lua flags=allow-oom
-- Drops what a silent host left in one lock, and hands over. ARGV 2 host  3 beat: only if its beat is still that one
-- Answers: OK | GONE (it has another beat) | INC
local same, open = known(true)
if not same then
	return {'INC'}
end
if beat_of(ARGV[2]) ~= ARGV[3] then
	return {'GONE'}
end
local lock = read_lock()
local gone = drop_hosts(lock, {[ARGV[2]] = true})
if #gone > 0 then
	commit(lock, open and hand_over(lock, gone) or {})
end
return {'OK'}
