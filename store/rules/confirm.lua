#!lua flags=allow-oom
-- Says whether this lease still stands. ARGV 2 host  3 token  4 fence. Raises the host's beat.
-- Answers: OK fence mode, and key if it has one: a keeper that takes the lease up knows only what the rule says now | GONE | GIVENUP mark (renew.lua) | INC
-- The fence must match too: a late duplicate of an old acquire may have granted the token anew.
local same, _, _, _, mark = known(true)
local stop = not_now(same, mark)
if stop then
	return stop
end
local lock = read_lock()
local lease = find(lock.l, ARGV[3])
raise_beat(ARGV[2])
if lease and lease.key and not key_stands(lock, lease) then -- a beat has told what became of it, or will
	return {'GONE'}
end
if lease and lease.host == ARGV[2] and number(lease.fence) == ARGV[4] then -- mutant: confirm
	return {'OK', ARGV[4], lease.mode, lease.key}
end
return {'GONE'}
