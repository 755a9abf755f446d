-- In front of entries.lua: which entries (see there) clash.
-- Where many ask, looking at each entry for each of them would take n * n: a thousand ranges of a thousand hosts are no reason
-- for the server to stand still. So they ask a tree over the bounds of all ranges, which takes n * log n.
local FEW = 32 -- askers who may look at each entry: that is still in proportion to n

-- Two files of one host are two owners: under one name they exclude each other as two hosts do.
local function is_same_owner(a, b)
	return a.host == b.host and a.file == b.file
end

local function clash(a, b)
	return a.space == b.space and (a.mode == 'exclusive' or b.mode == 'exclusive') and a.from < b.to and b.from < a.to and
		not is_same_owner(a, b)
end

-- A collection has add(entry), and first(entry, mode): the first one of this mode (nil: of any) that was added and clashes
-- with the entry; without a mode not necessarily the first.
local function list_of_entries()
	local entries = {}
	local function first(entry, mode)
		for i = 1, #entries do
			if (not mode or entries[i].mode == mode) and clash(entry, entries[i]) then
				return entries[i]
			end
		end
	end
	return {add = function(entry) entries[#entries + 1] = entry end, first = first}
end

-- A pair knows the first entry that was put at a node, and the first one of another owner.
local function put(pair, node, entry)
	local known = pair[1][node]
	if not known then
		pair[1][node] = entry
	elseif not pair[2][node] and not is_same_owner(known, entry) then
		pair[2][node] = entry
	end
end

-- A node of the tree stands for the ranges between two bounds; its children are 2 * node and 2 * node + 1. A range is made of a
-- few nodes, and its ends lie below two paths to the root. A node has a pair of those entries whose range is made of it (whole),
-- and one of those that have a part in it (part): so two ranges meet where one has a part in what the other is made of,
-- or where one is made of a node above an end of the other.
local function tree_of_entries(lists)
	local bounds, place, leaves = {}, {}, 1
	for _, list in ipairs(lists) do
		for _, e in ipairs(list) do
			place[e.from], place[e.to] = true, true
		end
	end
	for at in pairs(place) do
		bounds[#bounds + 1] = at
	end
	table.sort(bounds)
	for i = 1, #bounds do
		place[bounds[i]] = i - 1
	end
	while leaves < #bounds do
		leaves = leaves * 2
	end

	local kinds, arrival, count = {}, {}, 0 -- space and mode -> {whole, part}
	local function add(entry)
		local left, right, kind = leaves + place[entry.from], leaves + place[entry.to], entry.space .. entry.mode
		local first, last = left, right - 1
		kinds[kind] = kinds[kind] or {whole = {{}, {}}, part = {{}, {}}}
		local whole, part = kinds[kind].whole, kinds[kind].part
		count = count + 1
		arrival[entry] = count
		while left < right do
			if left % 2 == 1 then
				put(whole, left, entry)
				put(part, left, entry)
				left = left + 1
			end
			if right % 2 == 1 then
				right = right - 1
				put(whole, right, entry)
				put(part, right, entry)
			end
			left, right = left / 2, right / 2
		end
		while first >= 1 do
			put(part, first, entry)
			if last ~= first then
				put(part, last, entry)
			end
			first, last = (first - first % 2) / 2, (last - last % 2) / 2
		end
	end
	local function first_of(entry, mode)
		local kind, found = kinds[entry.space .. mode], nil
		local function look(pair, node)
			local known = pair[1][node]
			if known and is_same_owner(known, entry) then
				known = pair[2][node]
			end
			if known and (not found or arrival[known] < arrival[found]) then
				found = known
			end
		end
		if not kind or (mode == 'shared' and entry.mode == 'shared') then
			return nil
		end
		local left, right = leaves + place[entry.from], leaves + place[entry.to]
		local first, last = left, right - 1
		while left < right do
			if left % 2 == 1 then
				look(kind.part, left)
				left = left + 1
			end
			if right % 2 == 1 then
				right = right - 1
				look(kind.part, right)
			end
			left, right = left / 2, right / 2
		end
		while first >= 1 do
			look(kind.whole, first)
			if last ~= first then
				look(kind.whole, last)
			end
			first, last = (first - first % 2) / 2, (last - last % 2) / 2
		end
		return found
	end
	local function first(entry, mode)
		if mode then
			return first_of(entry, mode)
		end
		return first_of(entry, 'exclusive') or first_of(entry, 'shared')
	end
	return {add = add, first = first}
end

-- For so many entries, of these lists, and about so many questions.
local function collection(entries, questions, lists)
	return math.min(entries, questions) <= FEW and list_of_entries() or tree_of_entries(lists)
end
