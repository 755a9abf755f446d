#!lua flags=allow-oom
-- Renews all leases of a host: whoever waits for one of them sees its beat move. ARGV 2 host
-- Answers: OK | INC
if not known(true) then
	return {'INC'}
end
raise_beat(ARGV[2])
return {'OK'}
