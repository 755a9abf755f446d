#!lua flags=no-writes
-- The rules by which other hosts go, as post.lua recorded them. ARGV 2 place and  3 digest of the caller
-- Answers: OK, number of places with the caller's digest, number of hosts that have a beat and no record, number of
-- places left out, and for each of up to 16 other digests a list: digest, number of places, text ('': unknown), and
-- host and age in ms of up to 3 of them
local MAX_SETS, MAX_NAMED, MAX_PLACES, MAX_TEXT = 16, 3, 10000, 16384
local FRESH_MS = 60000 -- a host that has leases raises its beat more often
local RULES = string.sub(STORE, 1, -6) .. 'rules'
local now = now_ms()

local sets, list, known, same, left_out = {}, {}, {}, 0, 0
local places = redis.call('HLEN', RULES)
local rows = places <= MAX_PLACES and redis.call('HGETALL', RULES) or {}
for i = 1, #rows, 2 do
	local digest, at, till, host = string.match(rows[i + 1], '^(%x+) (%d+) (%d+) (%S+)$')
	if digest and #digest == 16 and #host < 128 and tonumber(till) >= now then
		known[host] = true
		if rows[i] == ARGV[2] then
			-- the caller's own
		elseif digest == ARGV[3] then
			same = same + 1
		else
			if not sets[digest] then
				sets[digest] = {digest = digest, hosts = {}}
				list[#list + 1] = sets[digest]
			end
			local hosts = sets[digest].hosts
			hosts[#hosts + 1] = {host = host, age = math.max(now - tonumber(at), 0)}
		end
	end
end
if #rows == 0 then
	left_out = places
end
-- Those that most hosts have come first; the rest of the order is only to be the same each time.
table.sort(list, function(a, b)
	if #a.hosts ~= #b.hosts then
		return #a.hosts > #b.hosts
	end
	return a.digest < b.digest
end)

local unknown, beats = 0, redis.call('HLEN', HOSTS) <= MAX_PLACES and redis.call('HGETALL', HOSTS) or {}
for i = 1, #beats, 2 do
	if not known[beats[i]] and now - (tonumber(beats[i + 1]) or 0) < FRESH_MS then
		unknown = unknown + 1
	end
end

local answer = {'OK', number(same), number(unknown), '0'}
for i, set in ipairs(list) do
	if i > MAX_SETS then
		left_out = left_out + #set.hosts
	else
		local key = RULES .. ':' .. set.digest
		local text = redis.call('STRLEN', key) < MAX_TEXT and redis.call('GET', key) or ''
		local out = {set.digest, number(#set.hosts), text}
		table.sort(set.hosts, function(a, b) return a.host < b.host end)
		for n = 1, math.min(#set.hosts, MAX_NAMED) do
			out[#out + 1] = set.hosts[n].host
			out[#out + 1] = number(set.hosts[n].age)
		end
		answer[#answer + 1] = out
	end
end
answer[4] = number(left_out)
return answer
