#!lua flags=allow-oom
-- Renews all leases of a host: hosts that wait for one of them see its beat move. ARGV 2 host
-- Answers: OK | INC
if not known(true) then
	return {'INC'}
end
raise_beat(ARGV[2])
return {'OK'}
