-- What dflock has in a PostgreSQL database (14 or later): one schema. To be run once, by a role that may create schemas; dflock's own
-- role is given as :role (psql -v role=dflock). Take a database of its own: whoever may connect to a database can take its advisory
-- locks, and make all hosts wait.
--
-- Cells are those of store/replay/replay.h. A cell that is not there has version 0, or, if its row is still there, that of the row.
--
-- Why a rule is one step (store/postgresql/README.md has the whole argument): load() reads all of one snapshot. apply() first locks
-- each cell that was read or is written, by advisory locks, which need no row; then, in a newer snapshot, compares the versions; then
-- writes. No other apply() can change one of these cells before this one's commit.
begin;
create schema dflock;
create table dflock.about (
	format int not null,
	memory text not null check (memory ~ '^[0-9a-f]{32}$'), -- another text is another memory
	secret text not null, -- of the names of channels: nobody else in this database may listen
	cleaned bigint not null default 0, -- how often rows were removed: what was loaded before that is void
	clean_from bigint not null default 0, -- where the next cleaning begins
	clean_at timestamptz not null default now()
);
create unique index on dflock.about ((true)); -- one row
insert into dflock.about (format, memory, secret)
	values (1, replace(gen_random_uuid()::text, '-', ''), gen_random_uuid()::text || gen_random_uuid()::text);
create table dflock.cell (
	id bigint generated always as identity unique, -- for pages of keys
	key bytea not null,
	name bytea not null,
	value bytea check (octet_length(value) <= 8388608),
	version bigint not null,
	primary key (key, name)
) with (fillfactor = 70);

-- The fences of the record. They grow within each name, as with Redis: a number is taken when the lock is loaded, so
-- behind each commit that changed the lock before; a transaction that loaded earlier and commits later is run again. But numbers
-- are left out, and those of different names do not come in the order of the commits. That is why acquires of different names do not
-- meet in a row.
create sequence dflock.fence minvalue 0;
do $$ begin
	perform setval('dflock.fence', 0); -- so that the first one is 1
end $$;

-- The advisory lock of the sequence of fences. Those of cells are hashes of key and name, which the engine makes (store/postgresql/send.c).
create function dflock.fence_lock() returns bigint language sql immutable as 'select 7233449318021::bigint';

create function dflock.channel(secret text, name text) returns text language sql immutable as $$
	select 'dflock_' || left(encode(sha256(convert_to(secret || name, 'SQL_ASCII')), 'hex'), 40)
$$;

-- Which memory this is. A table that was made anew, from a dump perhaps, is another one: what a host committed since may not be in it.
create function dflock.memory(text text) returns text language sql stable as $$
	select lpad(to_hex('dflock.about'::regclass::oid::bigint), 8, '0') || text
$$;

-- A new session: hears its messages, and learns what the server is. xids: a number above that of each transaction that was ever
-- committed.
create function dflock.hello(own_channel text, out recovery boolean, out fsync text, out pid int, out system text, out timeline text,
	out memory text, out xids bigint) language plpgsql as $$
begin
	recovery := pg_is_in_recovery();
	if recovery then
		return;
	end if;
	execute format('listen %I', (select dflock.channel(a.secret, own_channel) from dflock.about a));
	fsync := current_setting('fsync');
	pid := pg_backend_pid();
	system := (select to_hex(s.system_identifier) from pg_control_system() s);
	timeline := lower(substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8));
	memory := (select dflock.memory(a.memory) from dflock.about a);
	xids := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
end
$$;

-- The cells that are wanted, as far as there are any, all of one moment. First a row without a name: memory and `cleaned`, and time
-- (microseconds). takes: the next fence is this rule's. alone: the session keeps this lock until it calls pg_advisory_unlock_all(), but no
-- row's: one that hangs only makes second tries of others wait for their lock_timeout, and these go on without.
create function dflock.load(keys bytea[], names bytea[], takes boolean, alone bigint)
returns table (key bytea, name bytea, value bytea, version bigint) language plpgsql as $$
begin
	if alone is not null then
		perform pg_advisory_lock(alone);
	end if;
	if takes then
		perform pg_advisory_xact_lock_shared(dflock.fence_lock()); -- apply() may set it
	end if;
	return query
	with want as (select * from unnest(keys, names) as w(k, n))
	select ''::bytea, ''::bytea, convert_to(dflock.memory(a.memory) || ' ' || a.cleaned, 'SQL_ASCII'),
		(extract(epoch from clock_timestamp()) * 1000000)::bigint
	from dflock.about a
	union all
	select k, n, convert_to(case when takes then nextval('dflock.fence') - 1
		else (select s.last_value from dflock.fence s) end::text, 'SQL_ASCII'), 0::bigint
	from want where k = 'dflock:{0}:store' and n = '=fence'
	union all
	select c.key, c.name, c.value, c.version from want join dflock.cell c on c.key = k and c.name = n
	union all
	select c.key, c.name, c.value, c.version from want join dflock.cell c on c.key = k and c.name >= '=' and c.name < '>'
	where n = '*'
	union all
	select s.key, s.name, s.value, s.version from want, lateral (select * from dflock.cell c
		where c.key = k and c.name >= '=' and c.name < '>' and c.value is not null order by random() limit 8) s
	where n = '?'
	union all
	select k, n, null, (select coalesce(sum(c.version), 0)::bigint from dflock.cell c
		where c.key = k and c.name >= '=' and c.name < '>')
	from want where n in ('*', '?')
	union all
	select k, n, p.text, 0 from want, lateral (
		select convert_to(case when count(*) = 500 then max(q.id) else 0 end::text, 'SQL_ASCII') || '\x00'::bytea ||
			coalesce(string_agg(q.key || '\x00'::bytea, ''::bytea), ''::bytea) as text
		from (select c.id, c.key from dflock.cell c where c.name = '$' and c.value is not null
			and c.id > convert_from(substr(n, 2), 'SQL_ASCII')::bigint order by c.id limit 500) q) p
	where substr(n, 1, 1) = '>';
end
$$;

-- Raises the last fence to this one. Small steps are taken one by one, beside those of others; for a large one there is nobody else.
create function dflock.raise_fence(wanted bigint) returns void language plpgsql as $$
begin
	if wanted - (select s.last_value from dflock.fence s) > 1000 then
		perform pg_advisory_xact_lock(dflock.fence_lock());
		if wanted > (select s.last_value from dflock.fence s) then
			perform setval('dflock.fence', wanted);
		end if;
		return;
	end if;
	perform pg_advisory_xact_lock_shared(dflock.fence_lock());
	while wanted > (select s.last_value from dflock.fence s) loop
		perform nextval('dflock.fence');
	end loop;
end
$$;

-- Commits what a rule has written and said, if nothing that it read has changed. NULL: something has, and nothing was done. Else the
-- number of the transaction; 0: none was needed. was: memory and `cleaned` when it was loaded. new_fence: the largest that it gave, or NULL: no larger
-- one than what load() gave it. locks: those of all cells in rising order, and which are not to be shared. Whoever has read a whole hash excludes those that write its fields.
create function dflock.apply(was text, keys bytea[], names bytea[], versions bigint[], writes boolean[], vals bytea[], new_fence bigint,
	channels text[], texts text[], locks bigint[], alone boolean[]) returns bigint language plpgsql as $$
declare
	a record;
	there int;
	writing int := cardinality(array_positions(writes, true));
begin
	if current_setting('transaction_isolation') <> 'read committed' or current_setting('fsync') <> 'on' or
		current_setting('synchronous_commit') not in ('on', 'remote_apply') then
		raise exception 'fsync, synchronous_commit or the isolation level was changed' using errcode = 'DF001';
	end if;
	perform case when o then pg_advisory_xact_lock(l) else pg_advisory_xact_lock_shared(l) end from unnest(locks, alone) as u(l, o);
	if exists (select from unnest(keys, names, versions) as u(k, n, v) where v is not null and n not in ('*', '?') and
		v <> coalesce((select d.version from dflock.cell d where d.key = k and d.name = n), 0)) then
		return null;
	end if;
	if '*' = any(names) and exists (select from unnest(keys, names, versions) as u(k, n, v) where n = '*' and v <> (select coalesce(sum(d.version), 0)
		from dflock.cell d where d.key = k and d.name >= '=' and d.name < '>')) then
		return null;
	end if;
	select * into strict a from dflock.about;
	if was <> dflock.memory(a.memory) || ' ' || a.cleaned then
		return null;
	end if;
	update dflock.cell d set value = x, version = d.version + 1
		from unnest(keys, names, writes, vals) as u(k, n, w, x) where w and d.key = k and d.name = n;
	get diagnostics there = row_count;
	if there < writing then
		insert into dflock.cell (key, name, value, version) select k, n, x, 1 from unnest(keys, names, writes, vals) as u(k, n, w, x)
			where w and x is not null and not exists (select from dflock.cell d where d.key = k and d.name = n);
	end if;
	if new_fence is not null then
		perform dflock.raise_fence(new_fence);
	end if;
	if cardinality(channels) > 0 then
		perform pg_notify(dflock.channel(a.secret, m.c), m.t) from unnest(channels, texts) with ordinality as m(c, t, i) order by m.i;
	end if;
	return coalesce(pg_current_xact_id_if_assigned()::text::bigint, 0);
end
$$;

-- Removes rows of cells that have gone, among so many, every ten seconds, if there are at least so many. A row keeps the version of a
-- cell that comes and goes between loading and commit. What was loaded before a cleaning is void, however long ago that was:
-- it does not commit. So nothing needs the versions of these rows any more.
create function dflock.clean(among bigint, enough bigint) returns bigint language plpgsql as $$
declare
	a record;
	gone bigint;
	till bigint; -- the last of these rows
begin
	select * into a from dflock.about where clean_at + interval '10 seconds' < clock_timestamp() or clean_at > clock_timestamp()
		for update skip locked;
	if not found then
		return 0;
	end if;
	select max(w.id) into till from (select c.id from dflock.cell c where c.id > a.clean_from order by c.id limit among) w;
	select count(*) into gone from dflock.cell c where c.id > a.clean_from and c.id <= till and c.value is null;
	if gone >= enough then
		with old as (select c.id from dflock.cell c where c.id > a.clean_from and c.id <= till and c.value is null for update skip locked)
		delete from dflock.cell c using old where c.id = old.id and c.value is null;
		get diagnostics gone = row_count;
	else
		gone := 0;
	end if;
	update dflock.about set clean_at = clock_timestamp(), cleaned = cleaned + case when gone > 0 then 1 else 0 end, clean_from =
		case when exists (select from dflock.cell c where c.id > till) then till else 0 end;
	return gone;
end
$$;

-- A host has found that this memory is not what it was; or an operator has restored the database from a backup, and says so.
create function dflock.forget() returns text language sql as $$
	update dflock.about set memory = replace(gen_random_uuid()::text, '-', '') returning dflock.memory(memory)
$$;

grant usage on schema dflock to :role;
grant select, update on dflock.about to :role;
grant select, insert, update, delete on dflock.cell to :role;
grant usage, select, update on dflock.fence to :role;
commit;
