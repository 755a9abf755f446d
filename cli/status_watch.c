/* dflock status --watch: the status again and again, in place on a terminal. */
#include "cli/status.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "cli/show.h"

/* The terminal's other page, without a cursor; a line that is too long ends at the margin. */
#define WATCH_ENTER "\033[?1049h\033[?25l\033[?7l"
#define WATCH_LEAVE "\033[?7h\033[?25h\033[?1049l"

static volatile sig_atomic_t watch_ended, watch_stopped;

static void watch_on_signal(int number)
{
	if (number == SIGTSTP)
		watch_stopped = true;
	else if (number != SIGWINCH)
		watch_ended = number;
}

static void watch_catch(void)
{
	/* No SA_RESTART: poll() is to end. */
	const struct sigaction action = {.sa_handler = watch_on_signal};
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};
	struct sigaction before;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
}

/* Keys come at once and are not shown. False: standard input is no terminal. */
static bool watch_take_keys(struct termios *before)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, before) < 0)
		return false;
	raw = *before;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 0;
	return tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

/* Shows as many lines as there is room for, each over the one that was there. */
static void watch_draw(const char *text)
{
	struct winsize size = {.ws_row = 24};
	unsigned rows, line = 1, more = 0;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row < 2)
		size.ws_row = 24;
	rows = size.ws_row - 1u;
	fputs("\033[H", stdout);
	while (*text) {
		size_t len = strcspn(text, "\n");

		if (line < rows) {
			printf("%.*s\033[K\n", (int)len, text);
			line++;
		} else {
			more++;
		}
		text += len + (text[len] == '\n');
	}
	if (more)
		printf("(%u more lines)\033[K\n", more);
	fputs("\033[J", stdout);
	fflush(stdout);
}

/* Until the time is over or a key is pressed. False: q, or a signal to end. */
static bool watch_wait(bool keys, int seconds)
{
	struct pollfd in = {.fd = keys ? STDIN_FILENO : -1, .events = POLLIN};
	char key;

	/* A signal may have come while the keeper was asked. */
	poll(&in, 1, watch_ended || watch_stopped ? 0 : seconds * 1000);
	if (in.revents && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q'))
		return false; /* also where the terminal is gone */
	return !watch_ended;
}

/* By Ctrl-Z: until this process goes on, the terminal is the shell's, as it was. */
static void watch_stop(bool terminal, struct termios *before)
{
	const struct sigaction usual = {.sa_handler = SIG_DFL};

	watch_stopped = false;
	if (terminal)
		fputs(WATCH_LEAVE, stdout);
	fflush(stdout);
	if (before)
		tcsetattr(STDIN_FILENO, TCSADRAIN, before);
	sigaction(SIGTSTP, &usual, NULL);
	raise(SIGTSTP);
	watch_catch();
	if (before)
		watch_take_keys(before);
	if (terminal)
		fputs(WATCH_ENTER, stdout);
}

static char *watch_read(status_writer *write, void *arg)
{
	char *text = NULL, when[SHOW_TIME_BYTES];
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	fprintf(f, "%s\n\n", show_when(time(NULL), when));
	write(arg, f);
	return fclose(f) == 0 ? text : NULL;
}

int status_watch(int seconds, status_writer *write, void *arg)
{
	bool terminal = isatty(STDOUT_FILENO), keys;
	struct termios before;
	char *text = NULL;

	watch_catch();
	keys = terminal && watch_take_keys(&before);
	if (terminal)
		fputs(WATCH_ENTER, stdout);
	do {
		if (watch_stopped)
			watch_stop(terminal, keys ? &before : NULL);
		free(text);
		text = watch_read(write, arg);
		if (terminal)
			watch_draw(text ? text : "no memory left\n");
		else
			printf("%s\n", text ? text : "no memory left\n");
		if (fflush(stdout) || ferror(stdout))
			break;
	} while (watch_wait(keys, seconds));
	if (terminal)
		printf(WATCH_LEAVE "%s", text ? text : "");
	if (keys)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
	free(text);
	return watch_ended ? 128 + watch_ended : 0;
}
