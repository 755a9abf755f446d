/*
 * Places that set LD_PRELOAD to a libdflock.so which is not there, as after an uninstall: the dynamic linker then
 * writes a line of its own, which cron mails and systemd logs, and runs the job without protection.
 *
 * Only text that names libdflock is of interest, in files of known folders, and so much of each at most.
 */
#include "cli/doctor.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/elf.h"

#define MAX_BYTES    (64u << 10)
#define MAX_FINDINGS 20
#define OURS         "libdflock"

struct search {
	struct doctor *doctor;
	unsigned findings;
};

/* Is it a name that only a shell can make? The dynamic linker knows $LIB. */
static bool is_of_shell(const char *name)
{
	const char *at = strpbrk(name, "$`");

	return at && strncmp(at, "$LIB/", 5) != 0 && strncmp(at, "${LIB}/", 7) != 0;
}

/* Each name of a list as LD_PRELOAD and /etc/ld.so.preload have it. */
static void check_list(struct search *s, const char *path, int line, char *list)
{
	char *rest = list, *name;

	while ((name = strsep(&rest, ": \t\r\n"))) {
		char why[ELF_ANSWER_BYTES];

		name += *name == '}'; /* LD_PRELOAD=${LD_PRELOAD:+$LD_PRELOAD:}NAME */
		if (!strstr(name, OURS) || is_of_shell(name) || s->findings >= MAX_FINDINGS ||
		    elf_can_preload(NULL, name, why))
			continue;
		s->findings++;
		doctor_find(s->doctor, FINDING_PROBLEM,
			    "%s, line %d: LD_PRELOAD names %s, which cannot be loaded: what is started there runs "
			    "unprotected; install the library there, or take this out",
			    path, line, name);
	}
}

/* "LD_PRELOAD=VALUE" in a line of a crontab, a unit, a script or a list of variables; the value may be in quotes. */
static void check_line(struct search *s, const char *path, int number, char *line)
{
	static const char key[] = "LD_PRELOAD=";
	char *at = line + strspn(line, " \t"), *value;

	if (*at == '#' || *at == ';')
		return;
	while ((at = strstr(at, key))) {
		char quote = at > line && strchr("\"'", at[-1]) ? at[-1] : '\0';
		size_t len;
		char end;

		value = at + sizeof(key) - 1;
		if (!quote && (*value == '"' || *value == '\''))
			quote = *value++;
		len = quote ? strcspn(value, quote == '"' ? "\"" : "'") : strcspn(value, " \t;");
		end = value[len];
		value[len] = '\0';
		check_list(s, path, number, value);
		if (!end)
			return;
		at = value + len + 1;
	}
}

static void check_file(struct search *s, const char *path)
{
	/* O_NONBLOCK: the entry may be a pipe, and opening that must not wait. Links are other names of units. Other users' crontabs are left
	 * to their owners: the linker maps what they name, and a file that was made for it can execute code there (as with ldd). */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW), number = 0;
	bool all_names = !strcmp(path, "/etc/ld.so.preload");
	struct stat st;
	bool ours = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (!st.st_uid || st.st_uid == geteuid());
	char *text = ours ? malloc(MAX_BYTES + 1) : NULL;
	ssize_t n = text ? read(fd, text, MAX_BYTES) : -1;
	char *rest = text, *line;

	if (fd >= 0)
		close(fd);
	if (n >= 0)
		text[n] = '\0';
	while (n > 0 && (line = strsep(&rest, "\n"))) {
		number++;
		if (all_names)
			line[strcspn(line, "#")] = '\0';
		if (strstr(line, OURS))
			(all_names ? check_list : check_line)(s, path, number, line);
	}
	free(text);
}

void doctor_preloads(struct doctor *d)
{
	static const char *const files[] = {
		"/etc/ld.so.preload", "/etc/crontab", "/etc/anacrontab", "/etc/environment", "/etc/cron.*/*",
		"/var/spool/cron/*", "/var/spool/cron/crontabs/*", "/etc/default/*",
		/* units, and their drop-ins */
		"/{etc,run,usr/local/lib,usr/lib}/systemd/system/{*,*.d/*}", "/lib/systemd/system/{*,*.d/*}"};
	struct search s = {.doctor = d};
	glob_t found = {.gl_pathc = 0};
	char link[1];
	/* The last one is the same as /usr/lib where /lib is a link. */
	size_t count = sizeof(files) / sizeof(files[0]) - (readlink("/lib", link, sizeof(link)) > 0);

	for (size_t i = 0; i < count; i++)
		glob(files[i], GLOB_BRACE | (i ? GLOB_APPEND : 0), NULL, &found);
	for (size_t i = 0; i < found.gl_pathc; i++)
		check_file(&s, found.gl_pathv[i]);
	globfree(&found);
	if (s.findings >= MAX_FINDINGS)
		doctor_find(d, FINDING_WARNING,
			    "there may be more places with an LD_PRELOAD that is not there than these %d",
			    MAX_FINDINGS);
}
