#!lua flags=allow-oom
-- Removes a host. ARGV 2 host  3 beat: only if its beat is still that one; '': in any case
-- Answers: OK | GONE (it has another beat) | INC
if not known(false) then
	return {'INC'}
end
if ARGV[3] ~= '' and beat_of(ARGV[2]) ~= ARGV[3] then
	return {'GONE'}
end
redis.call('HDEL', HOSTS, ARGV[2])
redis.call('HDEL', STORE, 'seat:' .. ARGV[2])
return {'OK'}
