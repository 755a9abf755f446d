/* The programs that dflock wrap runs (systemctl, crontab, diff), and the files in memory that they read and write. */
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/wrap.h"
#include "wire/memfd.h"

extern char **environ;

int wrap_execute(char *const words[], int in, int out)
{
	posix_spawn_file_actions_t actions;
	int ret, status = 0;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	if (in >= 0)
		posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
	if (out >= 0)
		posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	ret = posix_spawnp(&pid, words[0], &actions, NULL, words, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (ret) {
		cli_error("cannot run %s: %s", words[0], strerror(ret));
		return CLI_RUN_NOT_FOUND;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : CLI_RUN_FAILED;
}

int wrap_memfd(const char *text)
{
	int fd = memfd_make("dflock-wrap", 0);
	size_t len = text ? strlen(text) : 0;

	if (fd >= 0 && len && (write(fd, text, len) != (ssize_t)len || lseek(fd, 0, SEEK_SET) != 0)) {
		close(fd);
		fd = -1;
	}
	if (fd < 0)
		cli_error("no memory is left: %s", strerror(errno));
	return fd;
}

char *wrap_output(char *const words[])
{
	int fd = wrap_memfd(NULL);
	char *text = NULL;
	struct stat st;

	if (fd < 0)
		return NULL;
	if (wrap_execute(words, -1, fd) == 0 && fstat(fd, &st) == 0 && (text = calloc(1, (size_t)st.st_size + 1)) &&
	    pread(fd, text, (size_t)st.st_size, 0) != st.st_size) {
		free(text);
		text = NULL;
	}
	close(fd);
	return text;
}
