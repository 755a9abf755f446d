#!lua flags=allow-oom
-- Makes an exclusive lease a shared one, and hands over. ARGV 2 token
-- Answers: OK | GONE (it stands no more) | INC
local same, open = known(true)
if not same then
	return {'INC'}
end
local lock = read_lock()
local lease = find(lock.l, ARGV[2])
if not lease then
	return {'GONE'}
end
if lease.mode == 'exclusive' then
	local was = {host = lease.host, file = lease.file, space = lease.space, mode = lease.mode, from = lease.from, to = lease.to}
	lease.mode = 'shared'
	commit(lock, open and hand_over(lock, {was}) or {})
end
return {'OK'}
