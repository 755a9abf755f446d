#include "cli/program.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
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
#include "cli/instructions.h"
#include "cli/libraries.h"
#include "cli/script.h"
#include "cli/wrappers.h"

#define MAX_INTERPRETERS 5    /* the kernel follows no more scripts than this */
#define OLDEST_GLIBC     2028 /* as libraries_glibc() */

static void __attribute__((format(printf, 3, 4))) say(struct program *out, enum reach reach, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(out->line, sizeof(out->line), format, args);
	va_end(args);
	out->reach = reach;
}

/* Is it something that execve() would try? */
static int executable(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || faccessat(AT_FDCWD, path, X_OK, AT_EACCESS))
		return -EACCES;
	return 0;
}

int program_find(const char *name, char path[PATH_MAX])
{
	const char *dirs = getenv("PATH");
	int result = -ENOENT;

	if (!*name)
		return -ENOENT;
	if (strchr(name, '/')) {
		if (strlen(name) >= PATH_MAX)
			return -ENAMETOOLONG;
		strcpy(path, name);
		return executable(path);
	}
	/* Without PATH, glibc searches these. */
	for (const char *p = dirs ? dirs : "/bin:/usr/bin";; p++) {
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
	path[0] = '\0';
	return result;
}

int program_shim(char path[PATH_MAX])
{
	cli_find("libdflock.so", "lib", SHIM_INSTALLED, path);
	return access(path, R_OK) ? -errno : 0;
}

/*
 * Does the kernel tell the dynamic linker to be careful (AT_SECURE)? Then glibc takes preloads only by name, from the
 * system's folders, and only setuid ones. True with `what` filled.
 */
static bool is_secure(int fd, const char **what)
{
	struct statvfs fs;
	struct stat st;

	if (fstat(fd, &st) || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
	    (!fstatvfs(fd, &fs) && (fs.f_flag & ST_NOSUID)))
		return false;
	if ((st.st_mode & S_ISUID) && st.st_uid != getuid())
		*what = "setuid";
	else if ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getgid())
		*what = "setgid";
	else if (getuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0)
		*what = "given file capabilities";
	else
		return false;
	return true;
}

/* --- what its own instructions are --- */

/*
 * Libraries of the distributions with places that look like system calls, or are system calls, and take no lock. For
 * these libraries unclear places are ignored; a call with the number of flock or fcntl is reported all the same.
 */
static const struct {
	const char *name;
	const char *reason;
} harmless[] = {
	{"libcrypto.so", "tables of constants stand among its hand-written code"},
	{"libgcrypt.so", "tables of constants stand among its hand-written code"},
	{"libLLVM", "tables of constants stand among its code, which makes no system calls"},
	{"libclang", "tables of constants stand among its code, which makes no system calls"},
	{"libgomp.so", "makes futex calls alone (config/linux/x86/futex.h of gcc)"},
	{"libitm.so", "makes futex calls alone (config/linux/x86/futex_bits.h of gcc)"},
	{"liburing.so", "makes the calls of io_uring, which has no locks, and mmap, munmap, close and the like"},
};

static bool is_harmless(const char *path)
{
	const char *name = strrchr(path, '/');
	bool system = strncmp(path, "/lib", 4) == 0 || strncmp(path, "/usr/lib", 8) == 0;

	for (size_t i = 0; name && system && i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if (strncmp(name + 1, harmless[i].name, strlen(harmless[i].name)) == 0)
			return true;
	return false;
}

#define NET    "start it with `dflock run --net=on`, "
#define AROUND NET "or take the lock with flock(1) around it, and see what it does with `strace -f -e flock,fcntl`"

/* false: nothing was found in this file, and *out is as it was. */
static bool examine_code(const char *path, const char *program, struct program *out)
{
	struct instructions found;
	struct elf_facts elf;
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret;
	const bool own = strcmp(path, program) == 0;
	const char *whose = own ? "" : ", by its library ", *where = own ? "" : path;

	ret = fd < 0 ? -errno : elf_read(fd, &elf);
	if (!ret)
		ret = instructions_find(fd, &elf, &found);
	if (fd >= 0)
		close(fd);
	if (ret)
		say(out, REACH_DOUBTFUL,
		    "%s: it cannot be told whether it makes system calls without libc%s%s: %s; " AROUND, program, whose,
		    where,
		    ret == -EFBIG     ? "the file is too large"
		    : ret == -ENOTSUP ? "the instructions of this architecture are not known here"
		    : ret == -ENOEXEC ? "the file makes no sense"
				      : strerror(-ret));
	else if (found.locks)
		say(out, REACH_DOUBTFUL,
		    "%s makes the system calls flock or fcntl without libc%s%s (%u times, first at 0x%" PRIx64
		    "), which no preload sees: its locks may not be protected; " AROUND,
		    program, whose, where, found.locks, found.first);
	else if ((found.unknown || found.unclear) && !is_harmless(path))
		say(out, REACH_DOUBTFUL,
		    "%s may make system calls without libc%s%s (%u places, first at 0x%" PRIx64
		    "), which no preload sees: it cannot be told whether its locks are protected; " AROUND,
		    program, whose, where, found.unknown + found.unclear, found.first);
	else
		return false;
	return true;
}

static void examine_libraries(const char *path, const struct elf_facts *elf, struct program *out)
{
	struct libraries libraries;
	int ret = libraries_list(path, elf->interpreter, &libraries), version;
	bool found;

	if (ret == -EXDEV)
		say(out, REACH_DOUBTFUL,
		    "%s has a dynamic linker of its own (%s): it cannot be told which libc it has, and the library "
		    "needs glibc 2.28 or newer; see with `dflock run --`, and DFLOCK_LOG=debug, whether it says "
		    "something",
		    path, elf->interpreter);
	else if (ret)
		say(out, REACH_DOUBTFUL, "%s: it cannot be told which libraries it has (%s --list: %s)", path,
		    elf->interpreter, strerror(-ret));
	if (ret)
		goto out;
	if (libraries.missing)
		say(out, REACH_DOUBTFUL, "%s will not start: its library %s cannot be loaded (is it installed?)", path,
		    libraries.missing);
	else if (!libraries.libc)
		say(out, REACH_DOUBTFUL,
		    "%s is not linked with libc: it makes its system calls itself, and no preload sees its locks; " AROUND,
		    path);
	else if ((version = libraries_glibc(libraries.libc)) < OLDEST_GLIBC)
		say(out, REACH_NO,
		    "%s runs with a glibc (%s, %d.%d) that is older than 2.28: the preload cannot be loaded", path,
		    libraries.libc, version / 1000, version % 1000);
	else {
		found = examine_code(path, path, out);
		for (size_t i = 0; i < libraries.count && !found; i++)
			if (!libraries_is_libc(&libraries, libraries.paths[i]))
				found = examine_code(libraries.paths[i], path, out);
	}
out:
	libraries_free(&libraries);
}

/* --- the program's file --- */

static void examine_elf(const char *path, int fd, const struct elf_facts *elf, const char *shim, bool deep,
			struct program *out)
{
	struct elf_facts own;
	const char *what;
	int shim_fd = open(shim, O_RDONLY | O_CLOEXEC);

	if (shim_fd < 0 || elf_read(shim_fd, &own)) {
		say(out, REACH_CANNOT, "%s is missing or damaged; install it again", shim);
		goto out;
	}
	if (elf->class != own.class || elf->data != own.data || elf->machine != own.machine)
		say(out, REACH_NO,
		    "%s is of another architecture (%s bit, machine %u) than libdflock.so (%s bit, machine %u): its "
		    "locks are not protected; " NET "or build libdflock.so for it",
		    path, elf->class == 1 ? "32" : "64", elf->machine, own.class == 1 ? "32" : "64", own.machine);
	else if (!elf->dynamic)
		say(out, REACH_NO,
		    "%s is statically linked, so nothing can be preloaded into it: its locks are not protected; " NET
		    "use a dynamically linked build, or take the lock with flock(1) around it",
		    path);
	else if (strstr(elf->interpreter, "ld-musl"))
		say(out, REACH_NO,
		    "%s runs with musl (%s), and libdflock.so is built for glibc: it may not start with the preload; " NET
		    "build dflock with musl for it, or take the lock with flock(1) around it",
		    path, elf->interpreter);
	else if (is_secure(fd, &what))
		say(out, REACH_NO,
		    "%s is %s, so the dynamic linker ignores the preload: its locks are not protected; start it with "
		    "`dflock run --net=on` as root, or take the lock before it is started",
		    path, what);
	else if (elf->go)
		say(out, REACH_DOUBTFUL,
		    "%s is made with Go, whose programs make system calls without libc: the locks that it takes "
		    "itself are not protected; " NET "or take the lock with flock(1) around it",
		    path);
	else {
		say(out, REACH_YES, "%s is dynamically linked (%s): the preload reaches it", path, elf->interpreter);
		if (deep)
			examine_libraries(path, elf, out);
	}
out:
	if (shim_fd >= 0)
		close(shim_fd);
}

static void examine_file(const char *path, const char *shim, int depth, bool deep, struct program *out);

/* For programs whose names tell what they do with the environment. option: the option that it is started with;
 * NULL: any. */
static bool examine_wrapper(const char *path, const char *option, const char *shim, struct program *out)
{
	const struct wrapper *w = wrappers_find(path);

	if (!w || (option && !w->always && !wrappers_cleans_with(w, option)))
		return false;
	if (wrappers_takes_locks(w)) {
		examine_file(path, shim, 0, true, out);
		if (out->reach == REACH_YES)
			say(out, REACH_ITSELF,
			    "%s: the preload reaches it, but %s, so that the locks of what it starts are not "
			    "protected; %s",
			    path, w->reason, w->instead);
		return true;
	}
	say(out, w->always ? REACH_NO : REACH_DOUBTFUL, "%s: %s, so that the locks of what it starts %s protected; %s",
	    path, w->reason, w->always || option ? "are not" : "may not be", w->instead);
	return true;
}

/* What the text of a shell script says about the programs that it starts. *out holds the result for the
 * interpreter, and gets worse if the preload does not reach one of these programs. */
static void examine_commands(const char *path, int fd, const char *shim, struct program *out)
{
	struct script_command *commands = calloc(SCRIPT_MAX_COMMANDS, sizeof(*commands));
	size_t count = commands ? script_commands(fd, commands, SCRIPT_MAX_COMMANDS) : 0;
	struct program *inner = malloc(sizeof(*inner));
	char found[PATH_MAX];

	for (size_t i = 0; i < count && inner && out->reach == REACH_YES; i++) {
		const struct script_command *c = &commands[i];

		if (c->cleans) {
			say(out, REACH_DOUBTFUL,
			    "%s takes LD_PRELOAD away in line %d: the locks of what it starts there are not "
			    "protected; put `dflock run` behind that",
			    path, c->line);
		} else if (!c->program[0] && c->exec) {
			say(out, REACH_DOUBTFUL,
			    "%s: it cannot be told what it starts in line %d; ask for that program", path, c->line);
		} else if (c->program[0] && program_find(c->program, found) == 0) {
			*inner = (struct program){.reach = REACH_YES};
			if (!examine_wrapper(found, c->option, shim, inner))
				examine_file(found, shim, 1, c->exec, inner);
			if (inner->reach != REACH_YES && inner->reach != REACH_NOT_FOUND) {
				say(out, c->exec ? inner->reach : REACH_DOUBTFUL, "%.1024s starts, in line %d: %.4096s",
				    path, c->line, inner->line);
			}
		}
	}
	free(inner);
	free(commands);
}

static void examine_script(const char *path, int fd, const struct script_first *first, const char *shim, int depth,
			   bool deep, struct program *out)
{
	const char *slash = strrchr(first->interpreter, '/');
	char program[SCRIPT_WORD_BYTES], found[PATH_MAX], inner[PROGRAM_LINE_BYTES];
	const char *by = first->interpreter;
	bool cleans = false;

	if (slash && strcmp(slash, "/env") == 0) {
		if (!script_env(first->argument, program, &cleans)) {
			say(out, REACH_DOUBTFUL, "%s: it cannot be told what %s %s starts", path, by, first->argument);
			return;
		}
		if (cleans) {
			say(out, REACH_NO,
			    "%s takes LD_PRELOAD away in its first line (%s %s): its locks are not protected; put "
			    "`dflock run` there",
			    path, by, first->argument);
			return;
		}
		if (program_find(program, found)) {
			say(out, REACH_CANNOT, "%s runs by its interpreter: %s: no such program in PATH", path,
			    program);
			return;
		}
		by = found;
	}
	if (!examine_wrapper(by, "", shim, out))
		examine_file(by, shim, depth + 1, deep, out);
	if (out->reach == REACH_YES && script_is_shell(by) && depth == 0)
		examine_commands(path, fd, shim, out);
	if (strncmp(out->line, path, strlen(path)) != 0) {
		memcpy(inner, out->line, sizeof(inner));
		snprintf(out->line, sizeof(out->line), "%.1024s runs by its interpreter: %.4096s", path, inner);
	}
}

static void examine_file(const char *path, const char *shim, int depth, bool deep, struct program *out)
{
	/* execvp() and shells run a file whose format the kernel does not know with the shell. */
	struct script_first first = {.interpreter = "/bin/sh"};
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret;
	struct elf_facts elf;

	if (fd < 0) {
		/* The file may be executable and not readable. */
		say(out, errno == ENOENT ? REACH_NOT_FOUND : REACH_CANNOT, "%s cannot be examined: %s", path,
		    strerror(errno));
		return;
	}
	ret = elf_read(fd, &elf);
	if (!ret)
		examine_elf(path, fd, &elf, shim, deep, out);
	else if (depth < MAX_INTERPRETERS) {
		script_first_line(fd, &first);
		examine_script(path, fd, &first, shim, depth, deep, out);
	} else
		say(out, REACH_CANNOT, "%s is neither an ELF file nor a script", path);
	close(fd);
}

/* The option of the wrapper's own arguments that makes it clean the environment, or else "". */
static const char *cleaning_option(const char *path, char *const arguments[])
{
	const struct wrapper *w = wrappers_find(path);

	for (int i = 1; w && arguments[0] && arguments[i] && arguments[i][0] == '-'; i++)
		if (wrappers_cleans_with(w, arguments[i]))
			return arguments[i];
	return "";
}

void program_examine_job(const char *name, char *const arguments[], const char *shim, bool deep, struct program *out)
{
	int ret = program_find(name, out->path);

	if (ret) {
		out->path[0] = '\0';
		say(out, ret == -ENOENT ? REACH_NOT_FOUND : REACH_CANNOT, "%s: %s%s", name,
		    ret == -ENOENT ? "no such program (PATH was searched if there is no / in the name)"
				   : strerror(-ret),
		    ret == -EACCES ? "; is it a file, and executable (chmod +x)?" : "");
		return;
	}
	if (!examine_wrapper(out->path, arguments ? cleaning_option(out->path, arguments) : NULL, shim, out))
		examine_file(out->path, shim, 0, deep, out);
}

void program_examine(const char *name, const char *shim, struct program *out)
{
	program_examine_job(name, NULL, shim, true, out);
}
