/*
 * Places that set LD_PRELOAD to a libdflock.so which is not there, as after an uninstall: the dynamic linker then
 * writes a line of its own, which cron mails and systemd logs, and runs the job without protection.
 *
 * Only text that names libdflock is of interest, in files of known folders, so many and so much of each at most.
 */
#include "cli/doctor.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/elf.h"

#define MAX_FILES    5000
#define MAX_BYTES    (64u << 10)
#define MAX_FINDINGS 20
#define OURS         "libdflock"

struct search {
	struct doctor *doctor;
	unsigned files, findings;
};

/* Each name of a list as LD_PRELOAD and /etc/ld.so.preload have it. */
static void check_list(struct search *s, const char *path, int line, char *list)
{
	char *rest = list, *name;

	while ((name = strsep(&rest, ": \t\r\n"))) {
		char why[ELF_ANSWER_BYTES];
		int ret;

		if (!strstr(name, OURS) || s->findings >= MAX_FINDINGS)
			continue;
		ret = elf_can_preload(NULL, name, why);
		if (ret == 1)
			continue;
		s->findings++;
		if (ret == 0)
			doctor_find(
				s->doctor, FINDING_PROBLEM,
				"%s, line %d: LD_PRELOAD names %s, which cannot be loaded: what is started there runs "
				"unprotected; install the library there, or take this out",
				path, line, name);
		else
			doctor_find(
				s->doctor, FINDING_WARNING,
				"%s, line %d: LD_PRELOAD names %s, and whether that can be loaded cannot be told: %s",
				path, line, name, strerror(-ret));
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

static void check_file(struct search *s, const char *path, bool all_names)
{
	/* O_NONBLOCK: the entry may be a pipe, and opening that must not wait. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), number = 0;
	char *text, *rest, *line;
	struct stat st;
	ssize_t n;

	/* Files that this user may not read (other users' crontabs) are left to their owners. */
	if (fd < 0)
		return;
	text = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? malloc(MAX_BYTES + 1) : NULL;
	n = text ? read(fd, text, MAX_BYTES) : -1;
	close(fd);
	s->files++;
	if (n > 0) {
		text[n] = '\0';
		rest = text;
		while ((line = strsep(&rest, "\n"))) {
			number++;
			if (!strstr(line, OURS))
				continue;
			if (all_names) {
				line[strcspn(line, "#")] = '\0';
				check_list(s, path, number, line);
			} else {
				check_line(s, path, number, line);
			}
		}
	}
	free(text);
}

/* The files of a folder, and of folders in it that end in ".d" (drop-ins of units). */
static void check_folder(struct search *s, const char *folder, bool deep)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;

	if (!dir)
		return;
	while (s->files < MAX_FILES && (entry = readdir(dir))) {
		const size_t len = strlen(entry->d_name);
		char path[PATH_MAX];
		struct stat st;

		if (entry->d_name[0] == '.' ||
		    snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) >= PATH_MAX ||
		    fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT))
			continue;
		/* Links are other names of units, which are looked at under their own names. */
		if (S_ISREG(st.st_mode))
			check_file(s, path, false);
		else if (S_ISDIR(st.st_mode) && deep && len > 2 && strcmp(entry->d_name + len - 2, ".d") == 0)
			check_folder(s, path, false);
	}
	closedir(dir);
}

void doctor_preloads(struct doctor *d)
{
	static const char *const files[] = {"/etc/crontab", "/etc/anacrontab", "/etc/environment"};
	static const char *const folders[] = {"/etc/cron.d",
					      "/etc/cron.hourly",
					      "/etc/cron.daily",
					      "/etc/cron.weekly",
					      "/etc/cron.monthly",
					      "/var/spool/cron",
					      "/var/spool/cron/crontabs",
					      "/etc/default",
					      "/etc/systemd/system",
					      "/run/systemd/system",
					      "/usr/local/lib/systemd/system",
					      "/usr/lib/systemd/system",
					      "/lib/systemd/system"};
	struct search s = {.doctor = d};
	struct stat usr, lib;

	check_file(&s, "/etc/ld.so.preload", true);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		check_file(&s, files[i], false);
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		/* One folder under two names, where /lib is a link. */
		if (strcmp(folders[i], "/lib/systemd/system") == 0 && !stat("/usr/lib/systemd/system", &usr) &&
		    !stat(folders[i], &lib) && usr.st_dev == lib.st_dev && usr.st_ino == lib.st_ino)
			continue;
		check_folder(&s, folders[i], true);
	}
	if (s.files >= MAX_FILES)
		doctor_find(
			d, FINDING_WARNING,
			"more than %d crontabs and units: not all were searched for an LD_PRELOAD that is not there",
			MAX_FILES);
	if (s.findings >= MAX_FINDINGS)
		doctor_find(d, FINDING_WARNING,
			    "there may be more places with an LD_PRELOAD that is not there than these %d",
			    MAX_FINDINGS);
}
