#!lua
-- Grants a lease, or queues the request and tells the hosts in the way. Idempotent per token.
-- ARGV 2 host  3 file  4 token  5 space  6 mode  7 from  8 to  9 ask (2: never BUSY)  10 pass  11 beat (this counts as a beat of the
-- host)  12 grow (if no other owner has or waits for anything of the name and space, grant the whole range)
-- 13 rest (ms; 0: none): this lease is for one lock, and nothing of the name and space is granted for so long after its
-- grant, to this host neither. Only for exclusive requests of the whole range
-- 14 job: which program asks (store/job.h), for people
-- 15 key: the lease is also the lock of this key (renew.lua); '': of none. Only for exclusive requests of the whole range
-- 16.. host, beat of each host that the caller calls dead: what it has is dropped if its beat is still that one
-- Answers: OK fence mode, and from to if that is more than was asked for | WAIT or BUSY, then a number that grows with
-- every WAIT (BUSY: 0), then host, beat, age in ms, 'holds' or 'waits' of up to 16 hosts in the way | REST, the same
-- number (0: it only asked, and is not queued), how many ms the rest lasts, then hosts as above | TAKEN, the same number, for how many
-- ms a client has the key (-1: for ever), and the beginning of its token ('': none has it; it is left free for clients) | GRACE | LIMIT | GIVENUP mark
-- (renew.lua) | INC
-- Who wakes a waiter when a rest is over: no message does. Its host asks again after so many ms, and that grants the
-- first waiter, whichever host asks.
-- A late duplicate, executed after the token was released, grants anew with another fence: confirm says GONE for the
-- old fence, and the host that is recalled for a token it does not know releases it.
local MAX_ENTRIES, MAX_BLOCKERS = 1000, 16
local host, token, ask, pass = ARGV[2], ARGV[4], ARGV[9] ~= '0', ARGV[10] == '1'

local function granted_answer(lease)
	local answer = {'OK', number(lease.fence), lease.mode}
	if lease.from ~= ARGV[7] or lease.to ~= ARGV[8] then
		answer[4], answer[5] = lease.from, lease.to
	end
	return answer
end

-- No other owner has, or waits for, anything of this name and space.
local function is_alone(lock, mine)
	for _, list in ipairs({lock.l, lock.q}) do
		for _, e in ipairs(list) do
			if e.space == mine.space and (e.host ~= mine.host or e.file ~= mine.file) then
				return false
			end
		end
	end
	return true
end

local function blockers(verdict, arrival, holders, ahead, left)
	local answer, seen, count, now = {verdict, number(arrival), left and number(left)}, {}, 0, now_ms()
	-- Where there are more, the answers to a request that waits name others each time: a chase (keeper/callers/deadlock.h) goes to those
	-- that are named.
	local function add(list, what)
		local first = not ask and #list > MAX_BLOCKERS and arrival or 0
		for i = 0, #list - 1 do
			local e = list[1 + (first + i) % #list]
			if not seen[e.host] and count < MAX_BLOCKERS then
				seen[e.host], count = true, count + 1
				local beat = beat_of(e.host)
				answer[#answer + 1] = e.host
				answer[#answer + 1] = beat
				answer[#answer + 1] = beat == '0' and '0' or number(now - beat) -- no beat: no age
				answer[#answer + 1] = what
			end
		end
	end
	add(holders, 'holds')
	add(ahead, 'waits')
	return answer
end

-- The leases in the way, the waiters ahead, and whether one of these waiters will go on waiting: one that only asks
-- stops soon, and may have stopped already.
local function in_the_way(lock, mine, place)
	local holders, ahead, stays = {}, {}, false
	for _, e in ipairs(lock.l) do
		if clash(mine, e) then
			holders[#holders + 1] = e
		end
	end
	for i = 1, place - 1 do
		if clash(mine, lock.q[i]) then
			ahead[#ahead + 1] = lock.q[i]
			stays = stays or not lock.q[i].ask
		end
	end
	return holders, ahead, stays
end

local lock = read_lock()
local lease = find(lock.l, token)
if lease or ARGV[11] == '1' then
	raise_beat(host) -- with a lease: so that there is a write that replicas can acknowledge
end
-- It was handed over, and its host did not hear of it in time: the key expired, and clients may have had it since. No caller was told of
-- this lease. The next beat says that it is lost, and its host gives it back.
local lost = lease and lease.key and not key_stands(lock, lease) -- mutant: key-unheard
if lost then
	local format, key = key_split(lease)
	return {'TAKEN', number(now_us()), number(math.max(redis.call('PTTL', key), -1)),
		key_state(format, key, lease.token) == 'theirs' and key_holder(format, key) or ''}
end
if lease then
	-- An old snapshot brought it back, and its host was never told of it: other hosts may have had the lock meanwhile, with larger fences.
	if lease.fence < (tonumber(redis.call('HGET', STORE, 'first')) or 0) then -- mutant: old-fence
		commit(lock, {lease}, token)
	end
	return granted_answer(lease)
end

local dead = {}
for i = 16, #ARGV, 2 do
	dead[ARGV[i]] = ARGV[i] ~= host and beat_of(ARGV[i]) == ARGV[i + 1] or nil -- mutant: named-dead
end
local gone = drop_hosts(lock, dead)
local changed = #gone > 0
local mine = find(lock.q, token)
local queued = mine ~= nil
local full = not queued and #lock.l + #lock.q >= MAX_ENTRIES
if not queued and not full then
	mine = {token = token, host = host, file = ARGV[3], space = ARGV[5], mode = ARGV[6], from = ARGV[7], to = ARGV[8],
		rest = ARGV[13] ~= '0' and tonumber(ARGV[13]) or nil, job = ARGV[14], key = ARGV[15] ~= '' and ARGV[15] or nil}
	lock.q[#lock.q + 1] = mine
end
-- What the dead hosts had may have kept others waiting too, and these come first.
local granted = changed and hand_over(lock, gone) or {}
if full then
	if changed then
		commit(lock, granted)
	end
	return {'LIMIT'}
end

local place, holders, ahead, stays
local function look()
	local _
	_, place = find(lock.q, token)
	holders, ahead, stays = {}, {}, false
	if place then
		holders, ahead, stays = in_the_way(lock, mine, place)
	end
end
look()
-- The waiters ahead may wait for no lease at all: an old snapshot brought them back, or their requests were executed
-- after their hosts had given them up. They are granted, and their hosts give back what they do not know.
if place and #holders == 0 and #ahead > 0 and not pass then -- mutant: forgotten-ahead
	for _, e in ipairs(hand_over(lock, lock.q)) do
		granted[#granted + 1] = e
		changed = true
	end
	look()
end
local left = place and rest_left(mine.space) or 0
local is_first = place and #holders == 0 and left == 0 and (pass or #ahead == 0)
local client = is_first and mine.key and key_take(lock, mine, ask)
if client then
	local stays = not ask and not client.wrong
	if stays then
		changed = changed or mine.ask or mine.pass ~= (pass or nil)
		mine.ask, mine.pass = nil, pass or nil
	else
		table.remove(lock.q, place)
	end
	if changed or queued ~= stays then
		commit(lock, granted)
	end
	return client.wrong and redis.error_reply(client.wrong) or
		{'TAKEN', number(stays and now_us() or 0), number(client.left), client.who}
end
if is_first then
	table.remove(lock.q, place)
	if ARGV[12] == '1' and is_alone(lock, mine) then
		mine.from, mine.to = '0000000000000000000', '9223372036854775807'
	end
	lock.l[#lock.l + 1] = mine
	granted[#granted + 1] = mine
	place = nil
end
if not place then
	commit(lock, granted, token)
	return granted_answer(mine)
end
-- It rests, and nobody is asked: only the lease that began the rest can be in the way, and its host gives it back at the
-- end of the lock. Those who wait for this entry alone rest, too.
if left > 0 and ask then
	table.remove(lock.q, place)
	if queued or changed then
		commit(lock, granted)
	end
	return blockers('REST', 0, holders, ahead, left)
end
-- Where others wait already, the holders have mostly been asked. Not so for shared locks, which pass waiters if the
-- holders make theirs shared; nor for record locks: their holders may use another part of their range, and F_GETLK
-- wants to know what is in the way. And who is about to call the holders dead must hear from them that they live.
if ask and ARGV[9] ~= '2' and #holders > 0 and stays and mine.space == 'flock' and mine.mode == 'exclusive' then
	table.remove(lock.q, place)
	if queued then
		for _, e in ipairs(hand_over(lock, {mine})) do -- others may have waited for this entry alone
			granted[#granted + 1] = e
		end
	end
	if queued or changed then
		commit(lock, granted)
	end
	return blockers('BUSY', 0, holders, ahead)
end
if changed or not queued or mine.ask ~= (ask or nil) or mine.pass ~= (pass or nil) then
	mine.ask, mine.pass = ask or nil, pass or nil
	commit(lock, granted)
end
local arrival = now_us() -- compared with those of other shards (keeper/callers/deadlock.h)
if left > 0 then
	return blockers('REST', arrival, holders, ahead, left)
end
for _, e in ipairs(holders) do
	recall(mine, e)
end
-- The hosts of the waiters ahead may have ended, and then only this request asks the holders that those wait for: for
-- one waiter at each call, in turn.
if #holders == 0 then -- mutant: forgotten-waiter
	local w = lock.q[1 + arrival % (place - 1)]
	for _, e in ipairs(lock.l) do
		if clash(w, e) then
			recall(w, e)
		end
	end
end
return blockers('WAIT', arrival, holders, ahead)
