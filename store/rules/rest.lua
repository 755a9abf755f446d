#!lua flags=allow-oom
-- An operator ends a rest, and the waiters get what they waited for. ARGV 2 space  3 limit: only if a lease with a fence
-- of at most this began it
-- Answers: OK | GONE (nothing rests, or a younger lease began it) | INC
local same, open = known(true)
if not same then
	return {'INC'}
end
local left, _, fence = rest_read(ARGV[2])
if left == 0 or tonumber(fence) > tonumber(ARGV[3]) then
	return {'GONE'}
end
redis.call('HDEL', RESTS, REST[ARGV[2]])
local lock = read_lock()
if open and #lock.q > 0 then -- as if an exclusive lease of the whole range had gone
	commit(lock, hand_over(lock, {{token = '', host = '', file = '', space = ARGV[2], mode = 'exclusive',
		from = '0000000000000000000', to = '9223372036854775807'}}))
end
return {'OK'}
