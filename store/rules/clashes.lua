-- In front of entries.lua: which entries (see there) clash.
-- To compare each of many entries with each other entry would take n * n steps: a thousand ranges of a thousand hosts
-- must not stop the server. So many questions are answered by a tree over the bounds of all ranges, which takes
-- n * log n.
local FEW = 32 -- so many questions, or entries, are compared one by one: that is still in proportion to n

-- Two files of one host under one name are two owners: they exclude each other as two hosts do. So do two entries that
-- begin a rest: each stands for one lock of one caller, and for nothing else of its host. And two with a key: the older
-- one goes back first, so that clients get their turn.
local function is_same_owner(a, b)
	return a.token == b.token or (a.host == b.host and a.file == b.file and not a.rest and not b.rest and not a.key and
		not b.key)
end

local function clash(a, b)
	-- mutant: clash
	return a.space == b.space and (a.mode == 'exclusive' or b.mode == 'exclusive') and a.from < b.to and b.from < a.to and
		not is_same_owner(a, b)
end

-- A collection has add(entry), and first(entry, mode): the entry of this mode that was added first of those that
-- clash with the given one. Without a mode: any entry that clashes, not necessarily the first.
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

-- A pair has, for each node, the first entry that was put there, and the first one of another owner.
local function put(pair, node, entry)
	local known = pair[1][node]
	if not known then
		pair[1][node] = entry
	elseif not pair[2][node] and not is_same_owner(known, entry) then
		pair[2][node] = entry
	end
end

-- Two ranges overlap if one of them begins in the other. A node of the tree stands for the bytes between two bounds;
-- its children are 2 * node and 2 * node + 1. A range consists of a few nodes; its begin lies below all nodes of one
-- path to the root. For each space and mode, a node has a pair of the entries whose ranges consist of it among others
-- (made), and a pair of the entries that begin below it (begun).
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

	-- Calls visit(pair, node, entry) for the nodes that a range consists of, with of_made, and for those that it
	-- begins below, with of_begin.
	local function walk(entry, visit, of_made, of_begin)
		local node, left, right = leaves + place[entry.from], leaves + place[entry.from], leaves + place[entry.to]
		while left < right do
			if left % 2 == 1 then
				visit(of_made, left, entry)
				left = left + 1
			end
			if right % 2 == 1 then
				right = right - 1
				visit(of_made, right, entry)
			end
			left, right = left / 2, right / 2
		end
		while node >= 1 do
			visit(of_begin, node, entry)
			node = (node - node % 2) / 2
		end
	end
	local kinds, arrival, count, found = {}, {}, 0, nil
	local function look(pair, node, entry)
		local known = pair[1][node]
		if known and is_same_owner(known, entry) then
			known = pair[2][node]
		end
		if known and (not found or arrival[known] < arrival[found]) then
			found = known
		end
	end
	local function add(entry)
		local kind = entry.space .. entry.mode
		kinds[kind] = kinds[kind] or {made = {{}, {}}, begun = {{}, {}}}
		count = count + 1
		arrival[entry] = count
		walk(entry, put, kinds[kind].made, kinds[kind].begun)
	end
	local function first_of(entry, mode)
		local kind = kinds[entry.space .. mode]
		found = nil
		if kind and (mode == 'exclusive' or entry.mode == 'exclusive') then
			walk(entry, look, kind.begun, kind.made)
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

-- A collection for so many entries, all of them from these lists, and about so many questions.
local function collection(entries, questions, lists)
	return math.min(entries, questions) <= FEW and list_of_entries() or tree_of_entries(lists)
end
