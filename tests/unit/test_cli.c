/* The pure parts of the command line: what file systems do with locks, and text for terminals. */
#include <locale.h>

#include "cli/doctor.h"
#include "cli/show.h"
#include "tests/unit/suite.h"

static char line[FILES_LINE_BYTES];

static const struct {
	const char *type, *options;
	enum finding level;
	const char *says;
} file_systems[] = {
	{"overlay", "rw", FINDING_OK,
	 "overlay: its own locks hold on this machine only, those under dflock on all hosts"},
	{"nfs4", "rw,vers=4.2,local_lock=none", FINDING_WARNING, "nfs4 that asks its server for each lock"},
	{"nfs", "rw,vers=3,local_lock=none", FINDING_WARNING, "mount it with local_lock=flock"},
	{"nfs", "rw,vers=3,local_lock=posix", FINDING_WARNING, "nfs that asks its server for each lock"},
	{"nfs", "rw,vers=3,local_lock=flock", FINDING_OK, "keeps flock() on this machine"},
	{"nfs", "rw,vers=3,local_lock=all", FINDING_OK, "keeps flock() on this machine"},
	{"nfs", "rw,vers=3,nolock", FINDING_OK, "keeps flock() on this machine"},
	{"nfs", "rw,xnolock,nolocky", FINDING_WARNING, "asks its server"},
	{"cifs", "rw,vers=3.1.1", FINDING_WARNING, "mount it with nobrl"},
	{"smb3", "rw,nobrl,soft", FINDING_OK, "keeps locks on this machine"},
	{"fuse.sshfs", "rw", FINDING_WARNING, "try it with flock(1)"},
	{"fuseblk", "rw", FINDING_WARNING, "try it with flock(1)"},
	{"ceph", "rw", FINDING_WARNING, "may take locks across hosts itself"},
	{"proc", "rw", FINDING_PROBLEM, "choose another path"},
	{"autofs", "rw", FINDING_PROBLEM, "or have it mounted"},
	{"newfs", "rw", FINDING_WARNING, "of which dflock knows nothing"},
};

TEST_EACH(what_file_systems_do, ROWS(file_systems))
{
	enum finding level = files_judge(file_systems[_i].type, file_systems[_i].options, line);
	ck_assert_msg(level == file_systems[_i].level && strstr(line, file_systems[_i].says), "%s: %d: %s",
		      file_systems[_i].options, (int)level, line);
}

TEST(times)
{
	static const struct {
		int64_t ms;
		const char *text;
	} cases[] = {{-5, "0 s"},
		     {0, "0 ms"},
		     {999, "999 ms"},
		     {1000, "1 s"},
		     {59999, "59 s"},
		     {200000, "3 min 20 s"},
		     {18720000, "5 h 12 min"},
		     {273600000, "3 d 4 h"}};
	char out[SHOW_TIME_BYTES];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		ck_assert_str_eq(show_ms(cases[i].ms, out), cases[i].text);
	ck_assert_str_eq(show_when(0, out), "-");
	setenv("TZ", "UTC", 1);
	ck_assert_str_eq(show_when(1714566896, out), "2024-05-01 12:34:56");
}

/* What is printed, until the next call. */
static char *text;
static size_t size;

static FILE *paper(void)
{
	free(text);
	return open_memstream(&text, &size);
}

static const char *printed(FILE *f)
{
	fclose(f);
	return text;
}

static const char *print(struct grid *grid)
{
	FILE *f = paper();
	grid_print(grid, f);
	grid_free(grid);
	return printed(f);
}

static void setup(void) { ck_assert_ptr_nonnull(setlocale(LC_CTYPE, "C.UTF-8")); }
FIXTURE(setup, NULL)

TEST(names_that_somebody_chose)
{
	static const struct {
		const char *text, *shown;
		size_t columns;
	} cases[] = {
		{"plain", "plain", 5},
		{"a\033[2Jb\n", "a\\x1b[2Jb\\x0a", 13},
		{"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f", 4},
		{"\xe6\xbc\xa2", "\xe6\xbc\xa2", 2},
		{"\xff\xfe", "\\xff\\xfe", 8},
		{"a\xe2\x80\xae:", "a\\xe2\\x80\\xae:", 14}, /* turns the direction */
		{"a\xd8\x9c:", "a\\xd8\\x9c:", 10},          /* that, too */
		{"back\\slash", "back\\slash", 10},
	};
	char out[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		FILE *f = paper();

		ck_assert_uint_eq(show_escape(cases[i].text, out, sizeof(out)), cases[i].columns);
		ck_assert_str_eq(out, cases[i].shown);
		show_text(f, cases[i].text);
		ck_assert_str_eq(printed(f), cases[i].shown);
	}
	/* Never half of an escape or of a character. */
	ck_assert_uint_eq(show_escape("ab\033", out, 6), 2);
	ck_assert_str_eq(out, "ab");
	ck_assert_uint_eq(show_escape("a\xc3\xbc", out, 3), 1);
	ck_assert_str_eq(out, "a");
}

TEST(tables)
{
	struct grid *grid = grid_new(2);
	char wide[1001];

	grid_cell(grid, "a\033[2J\nb");
	grid_cell(grid, "\xff");
	grid_note(grid, "note\r\xe2\x80\xae, of any length");
	grid_cell(grid, "\xe6\xbc\xa2");
	grid_cell(grid, "%s", "back\\x1b");
	grid_cell(grid, "x");
	grid_cell(grid, "%s", "");
	ck_assert_str_eq(print(grid), "a\\x1b[2J\\x0ab  \\xff\n"
				      "note\\x0d\\xe2\\x80\\xae, of any length\n"
				      "\xe6\xbc\xa2             back\\x1b\n"
				      "x\n");
	/* Wider than any terminal: nothing is cut off. */
	memset(wide, 'w', sizeof(wide) - 1);
	wide[sizeof(wide) - 1] = '\0';
	setenv("COLUMNS", "40", 1);
	grid = grid_new(2);
	grid_cell(grid, "%s", wide);
	grid_cell(grid, "%s", wide);
	ck_assert_uint_eq(strlen(print(grid)), 2 * 1000 + 3);
}

TEST(tables_of_notes_and_of_many_rows)
{
	struct grid *grid = grid_new(3);
	int count = 0;

	grid_note(grid, "alone");
	ck_assert_str_eq(print(grid), "alone\n");
	ck_assert_str_eq(print(grid_new(1)), "");
	ck_assert_str_eq(print(NULL), "(not enough memory to show the rest)\n");
	grid = grid_new(2);
	for (int i = 0; i < 20000; i++) {
		grid_cell(grid, "%d", i);
		grid_cell(grid, "%d", i);
		grid_note(grid, "%d", i);
	}
	for (const char *p = print(grid); *p; p = strchr(p, '\n') + 1, count++)
		ck_assert_int_eq(atoi(p), count / 2);
	ck_assert_int_eq(count, 40000);
}

TEST(templates)
{
	static const struct {
		const char *template, *text;
	} cases[] = {
		{"pid {pid}, {name}{none}", "pid 7, a\\x1bb"},
		{"{o.t} {o.none|no, it is not!} {zero|-}", "deep no, it is not! -"},
		{"{since:when}, {pid:ms}, {from:range}, {o.from:range}", "-, 7 ms, 5-9, 0-end"},
		{"[{pid?}{zero!}a][{pid!}b][{zero?}c][{list?}d][{o?}e][{yes?}f][{no?}g][{null!}h]", "aefh"},
		{"[{pid=7}seven][{pid!=7}other][{o.t=deep}[{o.t!=deep}x]deep][{name=a}]", "sevendeep"},
		{"[{pid!}a[{pid?}b]c]d[{pid?}e[{pid!}f]g]", "deg"},
		{"{pid.deeper}{name.deeper}{list.x}", ""},
	};
	json_t *row =
		json_pack("{s:i,s:s,s:i,s:{s:s},s:[],s:b,s:b,s:n,s:i,s:i,s:s}", "pid", 7, "name", "a\033b", "zero", 0,
			  "o", "t", "deep", "list", "yes", 1, "no", 0, "null", "from", 5, "to", 10, "space", "record");
	struct grid *grid = grid_new(3);

	ck_assert_ptr_nonnull(row);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		FILE *f = paper();

		show_row(f, row, cases[i].template);
		ck_assert_str_eq(printed(f), cases[i].text);
	}
	grid_row(grid, row, "{pid}\t");
	grid_row(grid, row, "{name}");
	grid_row_note(grid, row, "note {pid}");
	grid_row(grid, NULL, "{pid}\tx\ty");
	ck_assert_str_eq(print(grid), "7     a\\x1bb\nnote 7\n   x  y\n");
	json_decref(row);
}
