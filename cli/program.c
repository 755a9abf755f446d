#include "cli/program.h"

#include <errno.h>
#include <fcntl.h>
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

#define MAX_INTERPRETERS 5 /* the kernel follows no more scripts than this */

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
		int r = n >= PATH_MAX ? -ENAMETOOLONG : executable(path);

		if (!r)
			return 0;
		if (r == -EACCES)
			result = r;
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

static void examine_elf(const char *path, int fd, const struct elf_facts *elf, const char *shim, struct program *out)
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
		    "%s is of another architecture (%s bit, machine %u) than libdflock.so (%s bit, machine %u):"
		    " its locks are not protected; build libdflock.so for it",
		    path, elf->class == 1 ? "32" : "64", elf->machine, own.class == 1 ? "32" : "64", own.machine);
	else if (!elf->dynamic)
		say(out, REACH_NO,
		    "%s is statically linked, so nothing can be preloaded into it: its locks are not protected; use a"
		    " dynamically linked build, or take the lock with flock(1) around it",
		    path);
	else if (strstr(elf->interpreter, "ld-musl"))
		say(out, REACH_NO,
		    "%s runs with musl (%s), and libdflock.so needs glibc: it fails to start with the preload; build"
		    " dflock with musl for it, or take the lock with flock(1) around it",
		    path, elf->interpreter);
	else if (is_secure(fd, &what))
		say(out, REACH_NO,
		    "%s is %s, so the dynamic linker ignores the preload: its locks are not protected; take the lock"
		    " before it is started",
		    path, what);
	else if (elf->go)
		say(out, REACH_DOUBTFUL,
		    "%s is made with Go, whose programs make system calls without libc: the locks that it takes itself"
		    " are not protected; take the lock with flock(1) around it",
		    path);
	else
		say(out, REACH_YES, "%s is dynamically linked (%s): the preload reaches it", path, elf->interpreter);
out:
	if (shim_fd >= 0)
		close(shim_fd);
}

/* "#!INTERPRETER ARGS": true with the interpreter. */
static bool script_interpreter(int fd, char interpreter[256])
{
	ssize_t n = pread(fd, interpreter, 255, 0);
	size_t start;

	if (n < 3 || memcmp(interpreter, "#!", 2))
		return false;
	interpreter[n] = '\0';
	interpreter[strcspn(interpreter, "\n")] = '\0';
	start = 2 + strspn(interpreter + 2, " \t");
	memmove(interpreter, interpreter + start, strlen(interpreter + start) + 1);
	interpreter[strcspn(interpreter, " \t\r")] = '\0';
	return interpreter[0] != '\0';
}

static void examine_file(const char *path, const char *shim, int depth, struct program *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), r;
	char interpreter[256];
	struct elf_facts elf;

	if (fd < 0) {
		/* May be executable and not readable. */
		say(out, errno == ENOENT ? REACH_NOT_FOUND : REACH_CANNOT, "%s cannot be examined: %s", path,
		    strerror(errno));
		return;
	}
	r = elf_read(fd, &elf);
	if (!r)
		examine_elf(path, fd, &elf, shim, out);
	else if (script_interpreter(fd, interpreter) && depth < MAX_INTERPRETERS)
		examine_file(interpreter, shim, depth + 1, out);
	else if (depth < MAX_INTERPRETERS)
		/* execvp() and shells give a file that the kernel does not know to the shell. */
		examine_file("/bin/sh", shim, MAX_INTERPRETERS, out);
	else
		say(out, REACH_CANNOT, "%s is neither an ELF file nor a script", path);
	close(fd);
}

void program_examine(const char *name, const char *shim, struct program *out)
{
	char inner[PROGRAM_LINE_BYTES];
	int r = program_find(name, out->path);

	if (r) {
		out->path[0] = '\0';
		say(out, r == -ENOENT ? REACH_NOT_FOUND : REACH_CANNOT, "%s: %s%s", name,
		    r == -ENOENT ? "no such program (PATH was searched if there is no / in the name)" : strerror(-r),
		    r == -EACCES ? "; is it a file, and executable (chmod +x)?" : "");
		return;
	}
	examine_file(out->path, shim, 0, out);
	if (strncmp(out->line, out->path, strlen(out->path)) == 0)
		return;
	/* It was its interpreter that was looked at. */
	memcpy(inner, out->line, sizeof(inner));
	snprintf(out->line, sizeof(out->line), "%.1024s runs by its interpreter: %.4096s", out->path, inner);
}
