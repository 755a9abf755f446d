/* See libraries.h. */
#include "cli/libraries.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/elf.h"

#define PATIENCE_MS 10000
#define MAX_ANSWER  (1u << 20)

static bool is_own_interpreter(const char *interpreter)
{
	struct elf_facts own;
	struct stat a, b;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), ret;

	if (fd < 0)
		return false;
	ret = elf_read(fd, &own);
	close(fd);
	return !ret && own.dynamic && !stat(own.interpreter, &a) && !stat(interpreter, &b) && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

/* The environment without what makes the dynamic linker load or say more. LD_LIBRARY_PATH stays. */
static char **plain_environment(char *preload)
{
	static const char *const gone[] = {
		"LD_PRELOAD=", "LD_AUDIT=", "LD_DEBUG=", "LD_DEBUG_OUTPUT=", "LD_VERBOSE=", "LD_WARN=", "LD_BIND_NOW="};
	size_t count = 0, used = 0;
	char **plain;

	while (environ[count])
		count++;
	plain = calloc(count + 2, sizeof(*plain));
	for (size_t i = 0; plain && i < count; i++) {
		bool keep = true;

		for (size_t g = 0; g < sizeof(gone) / sizeof(gone[0]); g++)
			keep = keep && strncmp(environ[i], gone[g], strlen(gone[g])) != 0;
		if (keep)
			plain[used++] = environ[i];
	}
	if (plain && preload)
		plain[used] = preload;
	return plain;
}

/* preload: "LD_PRELOAD=..." or NULL. */
static int start_linker(const char *program, const char *interpreter, char *preload, int out, pid_t *pid)
{
	char *const argv[] = {(char *)interpreter, (char *)"--list", (char *)program, NULL};
	char **env = plain_environment(preload);
	posix_spawn_file_actions_t actions;
	int ret;

	if (!env)
		return -ENOMEM;
	posix_spawn_file_actions_init(&actions);
	ret = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	if (!ret)
		ret = posix_spawn_file_actions_adddup2(&actions, out, 1);
	if (!ret)
		ret = posix_spawn_file_actions_adddup2(&actions, out, 2);
	if (!ret)
		ret = posix_spawn(pid, interpreter, &actions, NULL, argv, env);
	posix_spawn_file_actions_destroy(&actions);
	free(env);
	return -ret;
}

/* All output, NUL-terminated, in *text, which the caller frees. */
static int receive_list(int in, char **text)
{
	const int64_t deadline = cli_now_ms() + PATIENCE_MS;
	size_t have = 0;

	*text = malloc(MAX_ANSWER);
	if (!*text)
		return -ENOMEM;
	for (;;) {
		struct pollfd on = {.fd = in, .events = POLLIN};
		int64_t left = deadline - cli_now_ms();
		ssize_t n;

		if (left <= 0)
			return -ETIMEDOUT;
		if (poll(&on, 1, (int)left) <= 0)
			continue;
		if (have == MAX_ANSWER - 1)
			return -EIO;
		n = read(in, *text + have, MAX_ANSWER - 1 - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		have += (size_t)n;
	}
	(*text)[have] = '\0';
	return strlen(*text) == have ? 0 : -EIO;
}

static int add_library(struct libraries *out, const char *path)
{
	char **paths = reallocarray(out->paths, out->count + 1, sizeof(*paths));
	const char *name = strrchr(path, '/');

	if (!paths)
		return -ENOMEM;
	out->paths = paths;
	paths[out->count] = strdup(path);
	if (!paths[out->count])
		return -ENOMEM;
	if (name && strcmp(name, "/libc.so.6") == 0)
		out->libc = paths[out->count];
	out->count++;
	return 0;
}

/* "\tstatically linked" (it has no libraries), "\tNAME => PATH (0x...)", "\tPATH (0x...)", "\tlinux-vdso.so.1 (0x...)",
 * and "PROGRAM: error while loading shared libraries: NAME: why". */
static int take_line(struct libraries *out, char *line)
{
	static const char refused[] = "error while loading shared libraries: ";
	char *path = strstr(line, refused), *end;

	if (line[0] != '\t' && path) {
		path += sizeof(refused) - 1;
		path[strcspn(path, ":")] = '\0';
		free(out->missing);
		out->missing = strdup(path);
		return out->missing ? 0 : -ENOMEM;
	}
	if (line[0] != '\t')
		return -EIO;
	line++;
	path = strstr(line, " => ");
	path = path ? path + 4 : line;
	if (strcmp(path, "statically linked") == 0)
		return 0;
	end = strstr(path, " (0x");
	if (!end)
		return -EIO;
	*end = '\0';
	return path[0] == '/' ? add_library(out, path) : 0;
}

/* The output of `INTERPRETER --list PROGRAM` in *text, which the caller frees, also after an error; *status: how
 * it ended. */
static int ask_linker(const char *program, const char *interpreter, char *preload, char **text, int *status)
{
	char path[PATH_MAX];
	int ends[2], ret;
	pid_t pid;

	*text = NULL;
	/* A name without a slash would be searched for as a library. */
	if (!realpath(program, path))
		return -errno;
	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	ret = start_linker(path, interpreter, preload, ends[1], &pid);
	close(ends[1]);
	if (!ret) {
		ret = receive_list(ends[0], text);
		if (ret)
			kill(pid, SIGKILL);
		while (waitpid(pid, status, 0) < 0 && errno == EINTR)
			;
	}
	close(ends[0]);
	return ret;
}

int libraries_list(const char *program, const char *interpreter, struct libraries *out)
{
	char *text, *rest, *line;
	int status = -1, ret;

	*out = (struct libraries){.paths = NULL};
	if (!is_own_interpreter(interpreter))
		return -EXDEV;
	ret = ask_linker(program, interpreter, NULL, &text, &status);
	rest = text;
	while (!ret && (line = strsep(&rest, "\n")) && (rest || *line))
		ret = take_line(out, line);
	if (!ret && !out->missing && (!WIFEXITED(status) || WEXITSTATUS(status)))
		ret = -EIO;
	free(text);
	return ret;
}

int libraries_can_preload(const char *name)
{
	static const char own[] = "/proc/self/exe";
	char *text = NULL, *preload;
	int fd = open(own, O_RDONLY | O_CLOEXEC), status = -1, ret;
	struct elf_facts elf;

	if (fd < 0)
		return -errno;
	ret = elf_read(fd, &elf);
	close(fd);
	if (ret)
		return ret;
	if (asprintf(&preload, "LD_PRELOAD=%s", name) < 0)
		return -ENOMEM;
	ret = ask_linker(own, elf.interpreter, preload, &text, &status);
	if (!ret && (!WIFEXITED(status) || WEXITSTATUS(status)))
		ret = -EIO;
	if (!ret)
		ret = !strstr(text, "cannot be preloaded");
	free(preload);
	free(text);
	return ret;
}

void libraries_free(struct libraries *libraries)
{
	for (size_t i = 0; i < libraries->count; i++)
		free(libraries->paths[i]);
	free(libraries->paths);
	free(libraries->missing);
}

bool libraries_is_libc(const struct libraries *libraries, const char *path)
{
	static const char *const own[] = {"libc.so.6",    "libpthread.so.0", "libdl.so.2",    "librt.so.1",
					  "libm.so.6",    "libresolv.so.2",  "libutil.so.1",  "libanl.so.1",
					  "libmvec.so.1", "libnsl.so.1",     "libcrypt.so.1", "libBrokenLocale.so.1"};
	const char *name = strrchr(path, '/');
	char folder[PATH_MAX], of_libc[PATH_MAX];

	if (!name || !libraries->libc)
		return false;
	/* The dynamic linker is that of this program (libraries_list). */
	if (strncmp(name, "/ld-linux", 9) == 0 || strcmp(name, "/ld64.so.2") == 0)
		return true;
	/* A file of that name from another folder is not libc's. */
	if (snprintf(folder, sizeof(folder), "%.*s", (int)(name - path), path) >= PATH_MAX ||
	    snprintf(of_libc, sizeof(of_libc), "%.*s", (int)(strrchr(libraries->libc, '/') - libraries->libc),
		     libraries->libc) >= PATH_MAX ||
	    strcmp(folder, of_libc) != 0)
		return false;
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (strcmp(name + 1, own[i]) == 0)
			return true;
	return false;
}

int libraries_glibc(const char *libc)
{
	static const char mark[] = "GLIBC_2.";
	int fd = open(libc, O_RDONLY | O_CLOEXEC), newest = 0;
	size_t have = 0, size = 1u << 16;
	char *buffer = malloc(size);
	ssize_t n = 0;

	while (buffer && fd >= 0 && (n = read(fd, buffer + have, size - have)) > 0) {
		const char *at = buffer, *hit;
		size_t keep;

		have += (size_t)n;
		while ((hit = memmem(at, have - (size_t)(at - buffer), mark, sizeof(mark) - 1))) {
			const char *end = buffer + have, *p = hit + sizeof(mark) - 1;
			int minor = 0;

			while (p < end && *p >= '0' && *p <= '9' && minor < 100)
				minor = minor * 10 + (*p++ - '0');
			if (minor > newest && minor < 1000)
				newest = minor;
			at = hit + sizeof(mark) - 1;
		}
		/* A name may go on in the next piece. */
		keep = have < 16 ? have : 16;
		memmove(buffer, buffer + have - keep, keep);
		have = keep;
	}
	free(buffer);
	if (fd >= 0)
		close(fd);
	return newest ? 2000 + newest : 0;
}
