/*
 * dflock top: the locks of the cluster on a terminal, again and again, with keys to sort, filter, ask about one lock and break it.
 *
 * A view of the same document as dflock status. What is more than a view (who, break) is the command of that name, which runs on the
 * terminal in its place: its questions and refusals are those that the manual describes.
 */
#include <curses.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "cli/ask.h"
#include "cli/field.h"
#include "cli/show.h"
#include "cli/top.h"

#define TOP_S       2 /* between two looks */
#define TOP_MAX_S   3600
#define TOP_ROWS_AT 4 /* the line of the headings */

static int top_seconds = TOP_S;
static char top_why[CLI_LINE_BYTES]; /* there is no document */
static size_t top_first;             /* the first row on the screen */
static bool top_typing;              /* the filter */

static void top_look(void)
{
	json_decref(top.doc);
	top.doc = NULL;
	ask_once(WIRE_STATUS, 0, NULL, &top.doc, top_why);
	top_fill();
}

/* --- the screen --- */

/* Text of users, in so many columns of the terminal; the rest of them becomes blank. */
static void top_cell(int y, int x, int width, const char *text)
{
	char shown[4 * TOP_TEXT_BYTES];
	wchar_t wide[4 * TOP_TEXT_BYTES];
	int used = 0;
	size_t len, i;

	if (width > COLS - x)
		width = COLS - x;
	if (width <= 0 || y >= LINES)
		return;
	show_escape(text, shown, sizeof(shown));
	len = mbstowcs(wide, shown, sizeof(wide) / sizeof(wide[0]));
	for (i = 0; len != (size_t)-1 && i < len; i++) {
		int columns = wcwidth(wide[i]);

		if (used + columns > width)
			break;
		used += columns;
	}
	move(y, x);
	addnwstr(wide, len == (size_t)-1 ? 0 : (int)i);
	for (; used < width; used++)
		addch(' ');
}

/* What threatens the locks, the worst first. Each is said of the document, which has the default store, or of one of "stores". */
static const char *const top_alarms[] = {
	"[{frozen?}{frozen} processes are FROZEN until the store of their locks answers]",
	"[{store.up!}[{name?}store {name}: ]{store.error|not connected yet}]",
	"[{store.up?}{store.refuses?}[{name?}store {name}: ]NO NEW LOCKS: {store.refuses}]",
	"[{store.up?}{store.grace?}[{name?}store {name}: ]in grace: nothing new is granted for another {store.grace_left_ms:ms}]",
	"[{lost?}leases were lost: see `dflock status']",
	"[{taken_past?}locks were taken past dflock: see `dflock status']",
	"[{cluster_error?}not all can be shown: {cluster_error}]",
};

/* The first of them that holds; "": none. */
static void top_alarm(char line[TOP_TEXT_BYTES])
{
	char *text = NULL;
	size_t size, n;
	FILE *f = open_memstream(&text, &size);
	const json_t *store;

	line[0] = '\0';
	if (!f)
		return;
	for (size_t i = 0; i < sizeof(top_alarms) / sizeof(*top_alarms) && ftell(f) == 0; i++) {
		show_row(f, top.doc, top_alarms[i]);
		json_array_foreach (json_object_get(top.doc, "stores"), n, store)
			if (ftell(f) == 0)
				show_row(f, store, top_alarms[i]);
	}
	if (fclose(f) == 0)
		snprintf(line, TOP_TEXT_BYTES, "%s", text);
	free(text);
}

static void top_draw_head(void)
{
	const json_t *store = json_object_get(top.doc, "store"), *cluster = json_object_get(top.doc, "cluster"), *about,
		     *lock;
	size_t hosts = 0, held = 0, waiting = 0, silent = 0, i;
	char line[TOP_TEXT_BYTES], when[SHOW_TIME_BYTES];
	bool up = field_flag(store, "up");
	const char *host;

	snprintf(line, sizeof(line), "dflock top  %s  %s", top.doc ? field_text(top.doc, "host") : "",
		 show_when(time(NULL), when));
	attron(A_BOLD);
	top_cell(0, 0, COLS, line);
	attroff(A_BOLD);
	if (!top.doc) {
		attron(COLOR_PAIR(TOP_BAD));
		top_cell(1, 0, COLS, top_why);
		attroff(COLOR_PAIR(TOP_BAD));
		top_cell(2, 0, COLS, "");
		return;
	}
	json_object_foreach ((json_t *)json_object_get(cluster, "hosts"), host, about) {
		hosts++;
		silent += field_number(about, "age_ms") > field_number(cluster, "ttl_ms");
	}
	json_array_foreach (json_object_get(cluster, "locks"), i, lock) {
		held += json_array_size(json_object_get(lock, "leases"));
		waiting += json_array_size(json_object_get(lock, "waiters"));
	}
	snprintf(line, sizeof(line), "store %s, %s   hosts %zu, silent %zu   leases %zu, waiting %zu",
		 field_text(store, "server"), up ? "up" : "DOWN", hosts, silent, held, waiting);
	attron(COLOR_PAIR(up ? TOP_GOOD : TOP_BAD));
	top_cell(1, 0, COLS, line);
	attroff(COLOR_PAIR(up ? TOP_GOOD : TOP_BAD));
	top_alarm(line);
	attron(COLOR_PAIR(TOP_BAD));
	top_cell(2, 0, COLS, line);
	attroff(COLOR_PAIR(TOP_BAD));
}

/* Columns are as wide as their widest text of all rows, but for names, which get at most a third of the screen. */
static void top_widths(int widths[TOP_COLUMNS], const char *const heads[TOP_COLUMNS])
{
	for (size_t c = 0; c < TOP_COLUMNS; c++) {
		int most = (int)strlen(heads[c]);

		for (size_t i = 0; i < top.count; i++) {
			char shown[4 * TOP_TEXT_BYTES];
			int columns = (int)show_escape(top.rows[i].text[c], shown, sizeof(shown));

			most = columns > most ? columns : most;
		}
		widths[c] = c == TOP_LOCK && most > COLS / 3 ? COLS / 3 : most;
	}
}

static void top_draw(void)
{
	static const char *const locks[TOP_COLUMNS] = {"LOCK", "STATE", "HOST", "WHAT", "SINCE", "BY"};
	static const char *const of_hosts[TOP_COLUMNS] = {"", "STATE", "HOST", "", "HEARD OF", ""};
	const char *const *heads = top.hosts ? of_hosts : locks;
	int widths[TOP_COLUMNS], lines = LINES - TOP_ROWS_AT - 2;
	char line[TOP_TEXT_BYTES + 64];

	erase();
	top_draw_head();
	top_widths(widths, heads);
	if (top.at < top_first)
		top_first = top.at;
	if (lines > 0 && top.at >= top_first + (size_t)lines)
		top_first = top.at - (size_t)lines + 1;
	for (int y = -1; y < lines && top_first + (size_t)(y + 1) <= top.count; y++) {
		const struct top_row *row = y < 0 ? NULL : &top.rows[top_first + (size_t)y];
		bool chosen = row && top_first + (size_t)y == top.at;
		int x = 0;

		for (size_t c = 0; c < TOP_COLUMNS; c++) {
			attr_t how = !row             ? A_BOLD | (c == top.sort ? A_UNDERLINE : 0)
				     : chosen         ? A_REVERSE
				     : c == TOP_STATE ? COLOR_PAIR(row->color)
						      : 0;

			if (!widths[c])
				continue;
			attron(how);
			top_cell(TOP_ROWS_AT + y, x, c == TOP_BY ? COLS - x : widths[c] + 2,
				 row ? row->text[c] : heads[c]);
			attroff(how);
			x += widths[c] + 2;
		}
	}
	if (top_typing || *top.filter)
		snprintf(line, sizeof(line), "filter: %s%s", top.filter, top_typing ? "_" : "   (/ changes it)");
	else
		snprintf(line, sizeof(line),
			 "q ends  s sorts  r reverses  / filters  h %s  Enter asks about the lock  b breaks it",
			 top.hosts ? "locks" : "hosts");
	attron(COLOR_PAIR(TOP_DIM));
	top_cell(LINES - 1, 0, COLS - 1, line);
	attroff(COLOR_PAIR(TOP_DIM));
	refresh();
}

/* --- keys --- */

/* Another command of dflock about the chosen lock, on the terminal, until a key is pressed. */
static void top_run(const char *command)
{
	char program[PATH_MAX], *lock = top.at < top.count ? strdup(top.rows[top.at].lock) : NULL;
	char *words[] = {(char *)"dflock", (char *)command, (char *)"--", lock, NULL};
	pid_t pid;

	if (!lock || !*lock) {
		free(lock);
		return;
	}
	def_prog_mode();
	endwin();
	printf("$ dflock %s ", command);
	show_text(stdout, lock);
	putchar('\n');
	fflush(stdout);
	place_find("dflock", "bin", "dflock", program);
	pid = fork();
	if (pid == 0) {
		execv(program, words);
		cli_error("cannot run %s: %s", program, strerror(errno));
		_exit(CLI_FAILED);
	}
	if (pid < 0)
		cli_error("cannot start dflock %s: %s", command, strerror(errno));
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	fputs("\n(any key)", stdout);
	fflush(stdout);
	reset_prog_mode();
	timeout(-1);
	getch();
	free(lock);
	clear();
	top_look();
}

static void top_type(int key)
{
	size_t len = strlen(top.filter);

	if (key == '\n' || key == KEY_ENTER || key == 27)
		top_typing = false;
	if (key == 27)
		top.filter[0] = '\0';
	else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && len)
		top.filter[len - 1] = '\0';
	else if (key >= ' ' && key < KEY_MIN && key != 127 && len + 1 < sizeof(top.filter)) {
		top.filter[len] = (char)key;
		top.filter[len + 1] = '\0';
	}
	top.chosen[0] = '\0';
	top_fill();
}

static void top_move(long by)
{
	long at = (long)top.at + by;

	top.at = at < 0 || !top.count ? 0 : at >= (long)top.count ? top.count - 1 : (size_t)at;
	if (top.count)
		snprintf(top.chosen, sizeof(top.chosen), "%s", top.rows[top.at].lock);
}

/* Columns that have texts, one after the other. */
static void top_sort_next(void)
{
	do
		top.sort = (top.sort + 1) % TOP_COLUMNS;
	while (top.hosts && (top.sort == TOP_LOCK || top.sort == TOP_WHAT));
	top_fill();
}

/* Was it a key that chooses another row? */
static bool top_moves(int key)
{
	int page = LINES - TOP_ROWS_AT - 3;
	const struct {
		int key;
		long by;
	} moves[] = {{KEY_UP, -1},
		     {'k', -1},
		     {KEY_DOWN, 1},
		     {'j', 1},
		     {KEY_PPAGE, -page},
		     {KEY_NPAGE, page},
		     {KEY_HOME, LONG_MIN / 2},
		     {KEY_END, LONG_MAX / 2}};

	for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++)
		if (moves[i].key == key) {
			top_move(moves[i].by);
			return true;
		}
	return false;
}

/* What a key does. ERR (the time is over), and a key that means nothing, show it at once. */
static void top_key(int key)
{
	if (key == KEY_RESIZE || top_moves(key))
		return;
	switch (key) {
	case 's':
		top_sort_next();
		break;
	case 'r':
		top.down = !top.down;
		top_fill();
		break;
	case 'h':
		top.hosts = !top.hosts;
		top.sort = top.hosts ? TOP_HOST : TOP_LOCK;
		top_fill();
		break;
	case '/':
		top_typing = true;
		break;
	case '\n':
	case KEY_ENTER:
		top_run("who");
		break;
	case 'b':
		top_run("break");
		break;
	default:
		top_look();
	}
}

/* --- the command --- */

static void top_colors(void)
{
	if (!has_colors() || start_color() == ERR || use_default_colors() == ERR)
		return;
	init_pair(TOP_GOOD, COLOR_GREEN, -1);
	init_pair(TOP_WARN, COLOR_YELLOW, -1);
	init_pair(TOP_BAD, COLOR_RED, -1);
	init_pair(TOP_DIM, COLOR_CYAN, -1);
}

/* getch() says the same as when the time is over, but at once. */
static bool top_is_gone(void)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&in, 1, 0) > 0 && (in.revents & (POLLHUP | POLLERR));
}

/* Until the end, or until the terminal is gone. */
static void top_go_on(void)
{
	int64_t next;

	next = cli_now_ms() + top_seconds * 1000;
	for (int key = KEY_RESIZE; top_typing || (key != 'q' && key != 'Q');) {
		int64_t left;

		if (top_typing && key != ERR && key != KEY_RESIZE)
			top_type(key);
		else
			top_key(key);
		left = next - cli_now_ms();
		top_draw();
		timeout(left > 0 ? (int)left : 0);
		key = getch();
		if (key == ERR && top_is_gone())
			break;
		if (key == ERR) /* the time is over */
			next = cli_now_ms() + top_seconds * 1000;
	}
}

/* NULL: none can be drawn. */
static SCREEN *top_screen(void)
{
	SCREEN *screen = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) ? newterm(NULL, stdout, stdin) : NULL;
	const char *moves = screen ? tigetstr("cup") : NULL;

	if (!screen || (moves && moves != (char *)-1))
		return screen;
	/* It cannot move the cursor (TERM=dumb), and would be filled with blanks. */
	endwin();
	delscreen(screen);
	return NULL;
}

int cmd_top(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"seconds", 's', "SECONDS", 0, "look again every 2 or SECONDS seconds", 0}, {0}};
	const char *seconds = NULL;
	SCREEN *screen;

	cli_options(
		argc, argv,
		"Shows the locks of the cluster on the terminal: which host holds which, and which wait, until q is pressed. "
		"The last line has the keys.\vThe exit status is 0; 1 where no screen can be drawn.",
		NULL, known, (void *const[]){&seconds});
	if (seconds)
		top_seconds = cli_number(seconds, TOP_MAX_S);
	if (!top_seconds) {
		cli_error("--seconds takes from 1 to %d, not %s", TOP_MAX_S, seconds);
		return CLI_USAGE;
	}
	screen = top_screen();
	if (!screen) {
		cli_error(
			"this is no terminal on which a screen can be drawn (TERM=%s): `dflock status' and `dflock status --html' "
			"show the same",
			getenv("TERM") ? getenv("TERM") : "");
		return CLI_FAILED;
	}
	top_colors();
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	set_escdelay(100);
	curs_set(0);
	top_look();
	top_go_on();
	endwin();
	delscreen(screen);
	json_decref(top.doc);
	free(top.rows);
	return CLI_OK;
}
