/* How long a keeper's loop may stand still, and which memory of its parent is locked. */
#include "keeper/guard/table.h"
#include "keeper/guard/supervise.h"

#include <sys/mman.h>

#include "tests/unit/suite.h"

#define MS NS_PER_MS

static const struct {
	int64_t freeze_at_ms, since_ms, patience_ms;
	bool in_use;
} rows[] = {
	{0, 1000, 5000, false},     /* no lease yet */
	{22000, 1000, 5000, false}, /* nothing is held */
	{22000, 1000, 5000, true},  /* ttl_ms 30,000 */
	{3000, 1000, 1500, true},   /* half a second is for the next one */
	{1800, 1000, 400, true},    /* half of what is left */
	{1200, 1000, 200, true},    /* not less than two turns of its clock */
	{1000, 1000, 5000, true},   /* too late */
	{500, 1000, 5000, true},
};

TEST_EACH(patience, ROWS(rows))
{
	static struct table_head head;
	static struct table_slot slots[1];
	struct table table = {.head = &head, .slots = slots, .room = 1};
	head.freeze_at_ns = rows[_i].freeze_at_ms * MS;
	head.used = 1;
	head.busy[0] = rows[_i].in_use;
	slots[0].word = table_word(rows[_i].in_use ? TABLE_HELD : TABLE_FREE, WIRE_EXCLUSIVE, 1);
	ck_assert_int_eq(table_patience_ns(&table, rows[_i].since_ms * MS) / MS, rows[_i].patience_ms);
}

static const struct {
	const char *line;
	bool needed; /* by /usr/bin/dflockd */
} maps[] = {
	{"1000-3000 r-xp 00000000 00:1b 487   /usr/bin/dflockd\n", true},
	{"1000-3000 rw-p 00000000 00:00 0      [heap]\n", true},
	{"1000-3000 rw-p 00000000 00:00 0      [stack]\n", true},
	{"1000-3000 r-xp 00000000 00:1b 1   /lib/libc.so.6\n", true},
	{"1000-3000 ---p 00000000 00:1b 1   /lib/libc.so.6\n", false},
	{"1000-3000 r-xp 00000000 00:1b 1   /lib/libuv.so.1\n", false},
	{"1000-3000 rw-p 00000000 00:00 0 \n", false},
};

TEST_EACH(what_is_needed, ROWS(maps))
{
	char line[128];
	struct procfs_map map;
	strcpy(line, maps[_i].line);
	ck_assert(procfs_map_line(line, &map));
	ck_assert(map.from == 0x1000 && map.to == 0x3000);
	ck_assert_int_eq(supervise_needs(&map, "/usr/bin/dflockd"), maps[_i].needed);
}
