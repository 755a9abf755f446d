/* See hook.h. */
#include "keeper/kernel/hook.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire/memfd.h"

static bool copies_begun;

void copies_begin(void)
{
	copies_begun = true;
}

bool copies_are_possible(void)
{
	return copies_begun;
}

#define HOOK_SELF    "/proc/self/exe" /* in memory already: to start it waits for no mount */
#define HOOK_REAP_MS 20

static void on_hook_reap(uv_timer_t *timer)
{
	struct hook *h = timer->data;

	/* It has closed all its descriptors, and is about to end. */
	if (waitpid(h->pid, NULL, WNOHANG) == 0) {
		uv_timer_start(timer, on_hook_reap, HOOK_REAP_MS, 0);
		return;
	}
	h->pid = 0;
	h->said[h->said_len] = '\0';
	h->done(h->arg, h->said);
}

static void on_hook_closed(uv_handle_t *handle)
{
	struct hook *h = handle->data;

	close(h->fd);
	h->fd = -1;
	if (!uv_is_closing((uv_handle_t *)&h->reap))
		on_hook_reap(&h->reap);
}

static void on_hook_says(uv_poll_t *poll, int status, int events)
{
	struct hook *h = poll->data;
	char bytes[HOOK_SAID_BYTES];
	ssize_t n = read(h->fd, bytes, sizeof(bytes));
	size_t room = sizeof(h->said) - 1 - h->said_len;

	(void)status, (void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		uv_close((uv_handle_t *)poll, on_hook_closed);
		return;
	}
	memcpy(h->said + h->said_len, bytes, (size_t)n < room ? (size_t)n : room);
	h->said_len += (size_t)n < room ? (size_t)n : room;
}

/* A file that the command need not read: a pipe could be full. */
static int hook_text(const char *text, size_t len)
{
	int fd = memfd_make("dflock-event", MFD_CLOEXEC);
	int ret;

	if (fd < 0)
		return -errno;
	while (len > 0) {
		ssize_t n = write(fd, text, len);

		if (n <= 0)
			break;
		text += n;
		len -= (size_t)n;
	}
	ret = len || lseek(fd, 0, SEEK_SET) < 0 ? -errno : fd;
	if (ret < 0)
		close(fd);
	return ret;
}

/* Standard input: the text. Standard output: where to say what went wrong. */
static int hook_spawn(char *const argv[], char *const env[], int text, int say, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int ret;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, text, 0);
	posix_spawn_file_actions_adddup2(&actions, say, 1);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	copies_begin();
	ret = posix_spawn(pid, HOOK_SELF, &actions, &attr, argv, env);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	return -ret;
}

static int hook_spawn_words(struct hook *h, char *const words[], char *const env[], int text, int say)
{
	size_t count = 0;
	char limit[24], **argv;
	int ret;

	while (words[count])
		count++;
	argv = calloc(count + 4, sizeof(*argv));
	if (!argv)
		return -ENOMEM;
	snprintf(limit, sizeof(limit), "%lld", (long long)h->limit_ms);
	argv[0] = "dflockd";
	argv[1] = HOOK_RUN_EVENT;
	argv[2] = limit;
	memcpy(argv + 3, words, count * sizeof(*argv));
	ret = hook_spawn(argv, env, text, say, &h->pid);
	free(argv);
	return ret;
}

int hook_start(struct hook *h, char *const words[], char *const env[], const char *text, size_t len)
{
	int in = hook_text(text, len), out[2], ret = in;

	if (ret >= 0 && pipe2(out, O_CLOEXEC) != 0) {
		ret = -errno;
		close(in);
	}
	if (ret < 0)
		return ret;
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	ret = hook_spawn_words(h, words, env, in, out[1]);
	close(in);
	close(out[1]);
	if (ret < 0) {
		h->pid = 0;
		close(out[0]);
		return ret;
	}
	h->fd = out[0];
	h->said_len = 0;
	uv_poll_init(h->loop, &h->end, h->fd);
	h->end.data = h;
	uv_poll_start(&h->end, UV_READABLE | UV_DISCONNECT, on_hook_says);
	return 0;
}

void hook_init(struct hook *h, uv_loop_t *loop, hook_cb *done, void *arg)
{
	*h = (struct hook){.loop = loop, .done = done, .arg = arg, .limit_ms = HOOK_LIMIT_MS, .fd = -1};
	uv_timer_init(loop, &h->reap);
	h->reap.data = h;
}

void hook_stop(struct hook *h)
{
	uv_close((uv_handle_t *)&h->reap, NULL);
	if (h->fd >= 0 && !uv_is_closing((uv_handle_t *)&h->end))
		uv_close((uv_handle_t *)&h->end, on_hook_closed);
}
