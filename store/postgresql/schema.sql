-- What dflock has in a PostgreSQL database: one schema. To be run once, by a role that may create schemas; dflock's own role is
-- given as :role (psql -v role=dflock). Cells are those of store/replay/replay.h. A row stays when its cell has gone, with its
-- version: else a cell that came and went between loading and commit would look as if nothing had happened.
begin;
create schema dflock;
create table dflock.about (format int not null, memory text not null);
insert into dflock.about values (1, md5(gen_random_uuid()::text));
create table dflock.cell (
	id bigint generated always as identity unique,
	key bytea not null,
	name bytea not null,
	value bytea,
	version bigint not null default 0,
	primary key (key, name)
);

-- Which memory this is: another cluster, another timeline, or another text in `about` is another one. Hex digits.
create function dflock.identity() returns text language sql stable as $$
	select md5(s.system_identifier || ' ' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) || ' ' || a.memory)
	from pg_control_system() s, dflock.about a
$$;

-- The cells that are wanted, as far as there are any, all of one moment. First a row without a name: identity and time (microseconds).
create function dflock.load(keys bytea[], names bytea[])
returns table (key bytea, name bytea, value bytea, version bigint) language sql stable as $$
	with want as (select * from unnest(keys, names) as w(k, n))
	select ''::bytea, ''::bytea, convert_to(dflock.identity(), 'SQL_ASCII'),
		(extract(epoch from clock_timestamp()) * 1000000)::bigint
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
	where substr(n, 1, 1) = '>'
$$;

-- The same, when no other session has called this that has not unlocked since. The session keeps the lock until then, and no row's: one
-- that hangs only makes second tries of others wait for their lock_timeout, and these go on without.
create function dflock.alone() returns bigint language sql immutable as 'select 7233449318021::bigint';
create function dflock.load_alone(keys bytea[], names bytea[])
returns table (key bytea, name bytea, value bytea, version bigint) language plpgsql as $$
begin
	perform pg_advisory_lock(dflock.alone());
	return query select * from dflock.load(keys, names);
end
$$;

-- Commits what a rule has written and said, if nothing that it read has changed. NULL: something has, and nothing was
-- done. Else a position in the log that is before the commit.
-- Locks are taken in one order. Whoever has read a whole hash excludes those that write its fields: a field that comes
-- has no row that could be locked before.
create function dflock.apply(was text, keys bytea[], names bytea[], versions bigint[], writes boolean[], vals bytea[],
	channels text[], texts text[]) returns bigint language plpgsql as $$
declare
	c record;
	now bigint;
begin
	for c in select k, bool_or(n = '*') as whole from unnest(keys, names, writes) as u(k, n, w)
		where n = '*' or (w and substr(n, 1, 1) = '=') group by k order by k loop
		if c.whole then
			perform pg_advisory_xact_lock(hashtextextended(encode(c.k, 'hex'), 0));
		else
			perform pg_advisory_xact_lock_shared(hashtextextended(encode(c.k, 'hex'), 0));
		end if;
	end loop;
	for c in select * from unnest(keys, names, versions, writes) as u(k, n, v, w) where n not in ('*', '?') order by k, n loop
		insert into dflock.cell (key, name) values (c.k, c.n) on conflict do nothing;
		if c.w then
			select d.version into now from dflock.cell d where d.key = c.k and d.name = c.n for no key update;
		else
			select d.version into now from dflock.cell d where d.key = c.k and d.name = c.n for share;
		end if;
		if c.v is not null and c.v <> now then
			return null;
		end if;
	end loop;
	for c in select * from unnest(keys, names, versions) as u(k, n, v) where n = '*' loop
		select coalesce(sum(d.version), 0) into now from dflock.cell d where d.key = c.k and d.name >= '=' and d.name < '>';
		if c.v <> now then
			return null;
		end if;
	end loop;
	if was <> dflock.identity() then
		return null;
	end if;
	update dflock.cell d set value = u.x, version = d.version + 1
		from unnest(keys, names, writes, vals) as u(k, n, w, x) where u.w and d.key = u.k and d.name = u.n;
	perform pg_notify(m.c, m.t) from unnest(channels, texts) with ordinality as m(c, t, i) order by m.i;
	return pg_current_wal_insert_lsn() - '0/0'::pg_lsn;
end
$$;

-- A host has found that this memory is not what it was.
create function dflock.forget() returns void language sql as $$
	update dflock.about set memory = md5(gen_random_uuid()::text)
$$;

grant usage on schema dflock to :role;
grant select, update on dflock.about to :role;
grant select, insert, update on dflock.cell to :role;
commit;
