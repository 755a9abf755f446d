#!lua flags=no-writes
-- All hosts. Answers: OK, then host, beat, age in ms of each
local answer, rows, now = {'OK'}, redis.call('HGETALL', HOSTS), now_ms()
for i = 1, #rows, 2 do
	answer[#answer + 1] = rows[i]
	answer[#answer + 1] = rows[i + 1]
	answer[#answer + 1] = number(now - rows[i + 1])
end
return answer
