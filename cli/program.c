/*
 * See program.h. tests/cli/test_doctor_wrappers.py runs each wrapper that is installed, and looks whether LD_PRELOAD is
 * still set.
 */
#include "cli/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/elf.h"

#define MAX_INTERPRETERS 5   /* the kernel follows no more scripts than this */
#define FIRST_LINE_BYTES 256 /* the kernel reads no more of "#!" */

/* What is asked for, and what it is asked with. */
struct examined {
	const char *shim;
	bool deep; /* ask the dynamic linker, too */
	struct program *out;
};

static void __attribute__((format(printf, 3, 4))) say(struct program *out, enum reach reach, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(out->line, sizeof(out->line), format, args);
	va_end(args);
	out->reach = reach;
}

/* Is it something that execve() would try? 0 or -errno. */
static int executable(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return -errno;
	return S_ISREG(st.st_mode) && !faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) ? 0 : -EACCES;
}

static int program_find(const char *name, char path[PATH_MAX])
{
	const char *dirs = getenv("PATH");
	int result = -ENOENT;

	if (strchr(name, '/'))
		return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX ? executable(path) : -ENAMETOOLONG;
	/* Without PATH, glibc searches these. */
	for (const char *p = dirs ? dirs : "/bin:/usr/bin"; *name; p++) {
		size_t len = strcspn(p, ":");
		int n = snprintf(path, PATH_MAX, "%.*s%s%s", (int)len, p, len ? "/" : "", name);
		int ret = n >= PATH_MAX ? -ENAMETOOLONG : executable(path);

		if (!ret)
			return 0;
		if (ret == -EACCES)
			result = ret;
		p += len;
		if (!*p)
			break;
	}
	return result;
}

int program_shim(char path[PATH_MAX])
{
	place_find("libdflock.so", "lib", SHIM_INSTALLED, path);
	return access(path, R_OK) ? -errno : 0;
}

/*
 * Does the kernel tell the dynamic linker to be careful (AT_SECURE)? Then glibc takes preloads only by name, from the
 * system's folders, and only setuid ones. What the program is then; else NULL.
 */
static const char *is_secure(int fd)
{
	struct statvfs fs;
	struct stat st;

	if (fstat(fd, &st) || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
	    (!fstatvfs(fd, &fs) && (fs.f_flag & ST_NOSUID)))
		return NULL;
	if ((st.st_mode & S_ISUID) && st.st_uid != getuid())
		return "setuid";
	if ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getgid())
		return "setgid";
	return getuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0 ? "given file capabilities" : NULL;
}

/* --- programs that start others without the preload: they clean the environment, or another process starts the job --- */

struct wrapper {
	const char *names;
	bool always;        /* whatever its arguments are */
	const char *with;   /* if not always: with one of these options; NULL: its configuration may do so */
	const char *reason; /* "it ..." */
	const char *instead;
};

#define BEHIND   "put `dflock run` behind it, in front of the job"
#define IN_UNIT  "put `dflock run` in front of the job, or set LD_PRELOAD in the unit (Environment=)"
#define IN_THERE "install dflock there, and put `dflock run` behind it"
#define IN_TABLE "set LD_PRELOAD in the table, or put `dflock run` into its lines"

static const struct wrapper wrappers[] = {
	{"sudo sudoedit doas pkexec login", true, NULL, "it cleans the environment", BEHIND},
	{"su", false, "- -l --login", "it cleans the environment with -, and for all users but root it is setuid",
	 BEHIND},
	{"runuser", false, "- -l --login", "it cleans the environment with -", BEHIND},
	{"env", false, "- -i --ignore-environment", "it cleans the environment with -i", BEHIND},
	{"setpriv", false, "--reset-env", "it cleans the environment with --reset-env", BEHIND},
	{"bwrap", false, "--clearenv", "it cleans the environment with --clearenv, and the library must be inside",
	 BEHIND},
	{"chroot", false, NULL, "the library and the configuration must be inside", IN_THERE},
	{"doveadm dovecot doveconf", true, NULL, "doveconf cleans the environment (import_environment)",
	 "add LD_PRELOAD to import_environment in dovecot.conf"},
	{"systemctl service invoke-rc.d systemd-run run0", true, NULL,
	 "systemd starts the job, with an environment of its own", IN_UNIT},
	{"at batch", true, NULL, "atd starts the job, with an environment from which LD_PRELOAD is missing",
	 "put `dflock run` into the job"},
	{"cron", true, NULL, "jobs have the environment of their table", IN_TABLE},
	{"crontab", true, NULL, "cron starts the jobs, with the environment of the table", IN_TABLE},
	{"snap flatpak", true, NULL, "the job runs confined, with libraries of its own",
	 "take the lock with flock(1) around it"},
	{"ssh rsh docker nerdctl podman kubectl machinectl lxc-attach apptainer singularity", true, NULL,
	 "the job runs on another host or in a container", IN_THERE},
	{"screen tmux", false, NULL, "a session that runs already has the environment that it was started with",
	 BEHIND},
};

/* "-l --login" */
static bool wrapper_has(const char *list, const char *word)
{
	const size_t len = strlen(word);

	for (const char *p = list; p && len && (p = strstr(p, word)); p += len)
		if ((p == list || p[-1] == ' ') && (p[len] == ' ' || !p[len]))
			return true;
	return false;
}

static const struct wrapper *wrapper_named(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]); i++)
		if (wrapper_has(wrappers[i].names, name))
			return &wrappers[i];
	return NULL;
}

static const struct wrapper *wrapper_find(const char *path)
{
	const struct wrapper *found = wrapper_named(path);
	char resolved[PATH_MAX];

	/* /snap/bin/NAME and what /etc/alternatives chooses are links. */
	return !found && strchr(path, '/') && realpath(path, resolved) ? wrapper_named(resolved) : found;
}

/* --- the program's file --- */

#define NET "start it with `dflock run --net=on`, "

static void ask_linker(const char *path, const char *interpreter, const struct examined *ask)
{
	static const char refused[] = "error while loading shared libraries: ";
	char why[ELF_ANSWER_BYTES], *name;
	struct stat own, its;
	int ret;

	/* A file that the examined program names must not be run. */
	if (stat(elf_own_linker(), &own) || stat(interpreter, &its) || own.st_dev != its.st_dev ||
	    own.st_ino != its.st_ino) {
		say(ask->out, REACH_DOUBTFUL,
		    "%s has a dynamic linker of its own (%s): it cannot be told which libc it has, and the library "
		    "needs glibc 2.28 or newer; see with `dflock run --report` whether its locks are seen",
		    path, interpreter);
		return;
	}
	ret = elf_can_preload(path, ask->shim, why);
	if (ret == 1)
		return;
	if (ret)
		say(ask->out, REACH_DOUBTFUL, "%s: it cannot be told which libraries it has (%s --list: %s)", path,
		    interpreter, strerror(-ret));
	else if ((name = strstr(why, refused))) {
		name += sizeof(refused) - 1;
		name[strcspn(name, ":")] = '\0';
		say(ask->out, REACH_DOUBTFUL, "%s will not start: its library %s cannot be loaded (is it installed?)",
		    path, name);
	} else
		say(ask->out, REACH_NO, "%s: the dynamic linker does not load the preload into it: %s", path, why);
}

/* The preload is loaded into it. */
static void examine_dynamic(const char *path, const struct elf *elf, const struct examined *ask)
{
	const char *what =
		elf->go ? "is made with Go, whose programs make system calls without libc: the locks that it takes "
			  "itself are not protected"
		: elf->alone
			? "is not linked with libc: it makes its system calls itself, and no preload sees its locks"
			: NULL;

	if (what) {
		say(ask->out, REACH_DOUBTFUL, "%s %s; " NET "or take the lock with flock(1) around it", path, what);
		return;
	}
	say(ask->out, REACH_YES,
	    "%s is dynamically linked (%s): the preload reaches it%s; system calls without libc, and what it starts, do "
	    "not show in its file: `dflock run --report` and `--require=taken` tell",
	    path, elf->interpreter, elf->by_number ? ", and sees locks by syscall(), which it imports" : "");
	/* musl's linker has nothing to add: libdflock.so needs no version of anything there. */
	if (ask->deep && !strstr(elf->interpreter, "/ld-musl-"))
		ask_linker(path, elf->interpreter, ask);
}

static void examine_elf(const char *path, const struct elf *elf, const struct examined *ask)
{
	const ElfW(Ehdr) *head = &elf->head, *own = elf_own();
	const char *what;

	if (elf->foreign)
		say(ask->out, REACH_NO,
		    "%s is of another architecture (%s bit, machine %u) than libdflock.so (%s bit, machine %u): its "
		    "locks are not protected; " NET "or build libdflock.so for it",
		    path, head->e_ident[EI_CLASS] == ELFCLASS32 ? "32" : "64", head->e_machine,
		    own->e_ident[EI_CLASS] == ELFCLASS32 ? "32" : "64", own->e_machine);
	else if (elf->damaged)
		say(ask->out, REACH_CANNOT, "%s is damaged: its headers make no sense", path);
	else if (!elf->interpreter)
		say(ask->out, REACH_NO,
		    "%s is statically linked, so nothing can be preloaded into it: its locks are not protected; " NET
		    "use a dynamically linked build, or take the lock with flock(1) around it",
		    path);
	else if ((what = is_secure(elf->fd)))
		say(ask->out, REACH_NO,
		    "%s is %s, so the dynamic linker ignores the preload: its locks are not protected; start it with "
		    "`dflock run --net=on` as root, or take the lock before it is started",
		    path, what);
	else
		examine_dynamic(path, elf, ask);
}

static void examine_file(const char *path, const struct examined *ask, int depth);

/* words: what the program is started with, from the first argument on; NULL: anything. */
static bool examine_wrapper(const char *path, char *const words[], const struct examined *ask)
{
	const struct wrapper *w = wrapper_find(path);
	bool cleans = false;

	for (int i = 0; w && words && words[i] && words[i][0] == '-'; i++)
		cleans = cleans || wrapper_has(w->with, words[i]);
	if (!w || (words && !w->always && !cleans))
		return false;
	/* Debian's cron locks /run/crond.pid as long as it runs. */
	if (!strcmp(w->names, "cron")) {
		examine_file(path, ask, 0);
		if (ask->out->reach == REACH_YES)
			say(ask->out, REACH_ITSELF,
			    "%s: the preload reaches it, but %s, so that the locks of what it starts are not "
			    "protected; %s",
			    path, w->reason, w->instead);
		return true;
	}
	say(ask->out, w->always ? REACH_NO : REACH_DOUBTFUL,
	    "%s: %s, so that the locks of what it starts %s protected; %s", path, w->reason,
	    w->always || cleans ? "are not" : "may not be", w->instead);
	return true;
}

/* A file that is no ELF file. execvp() and shells run one whose format the kernel does not know with the shell. */
static void examine_script(const char *path, const struct elf *file, const struct examined *ask, int depth)
{
	char line[FIRST_LINE_BYTES] = "", found[PATH_MAX], inner[PROGRAM_LINE_BYTES],
	     *words[FIRST_LINE_BYTES / 2] = {"/bin/sh"};
	char *rest = line + 2, *word, *by;
	size_t count = 0;

	snprintf(line, sizeof(line), "%.*s", (int)(file->size < sizeof(line) ? file->size : sizeof(line)), file->bytes);
	line[strcspn(line, "\n")] = '\0';
	if (!strncmp(line, "#!", 2))
		while ((word = strsep(&rest, " \t\r")))
			if (*word)
				words[count++] = word;
	by = words[0];
	/* env(1) with one word starts that program. With options it does what `ask` does not know. */
	if (count == 2 && words[1][0] != '-' && (word = strrchr(by, '/')) && !strcmp(word, "/env")) {
		if (program_find(words[1], found)) {
			say(ask->out, REACH_CANNOT, "%s runs by its interpreter: %s: no such program in PATH", path,
			    words[1]);
			return;
		}
		by = found;
	}
	if (!examine_wrapper(by, words + 1, ask))
		examine_file(by, ask, depth + 1);
	if (strncmp(ask->out->line, path, strlen(path)) != 0) {
		memcpy(inner, ask->out->line, sizeof(inner));
		snprintf(ask->out->line, sizeof(ask->out->line), "%.1024s runs by its interpreter: %.4096s", path,
			 inner);
	}
}

static void examine_file(const char *path, const struct examined *ask, int depth)
{
	struct elf file;
	int ret = elf_open(path, &file);

	if (ret) { /* the file may be executable and not readable */
		say(ask->out, REACH_CANNOT, "%s cannot be examined: %s", path, strerror(-ret));
		return;
	}
	if (file.head.e_ident[0])
		examine_elf(path, &file, ask);
	else if (depth < MAX_INTERPRETERS)
		examine_script(path, &file, ask, depth);
	else
		say(ask->out, REACH_CANNOT, "%s is neither an ELF file nor a script", path);
	elf_close(&file);
}

void program_examine(const char *name, char *const words[], const char *shim, bool deep, struct program *out)
{
	const struct examined ask = {.shim = shim, .deep = deep, .out = out};
	char path[PATH_MAX];
	int ret = program_find(name, path);

	if (ret)
		say(out, REACH_CANNOT, "%s: %s%s", name,
		    ret == -ENOENT ? "no such program (PATH was searched if there is no / in the name)"
				   : strerror(-ret),
		    ret == -EACCES ? "; is it a file, and executable (chmod +x)?" : "");
	else if (!examine_wrapper(path, words, &ask))
		examine_file(path, &ask, 0);
}
