/* See ask.h. */
#include "cli/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "cli/field.h"
#include "procfs/procfs.h"
#include "wire/leases.h"
#include "wire/passing.h"
#include "wire/rundir.h"

#define ASK_PAUSE_MS  20
#define STATUS_TURN_S 60 /* until others that this user has asked for are answered */

/* A status longer than this is no status. */
#define STATUS_MAX_BYTES (256u << 20)

static int __attribute__((format(printf, 3, 4))) ask_fail(char why[CLI_LINE_BYTES], int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, CLI_LINE_BYTES, format, args);
	va_end(args);
	return -err;
}

/* Every user that can write the directory could put a socket there, so the answer must come from root or this
 * user. */
static int ask_check_peer(struct ask *ask, char why[CLI_LINE_BYTES])
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(ask->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return ask_fail(why, errno, "%s", strerror(errno));
	if (!rundir_owner_counts(ask->dir, peer.uid, geteuid()))
		return ask_fail(why, EPERM,
				"the keeper at %s/" WIRE_SOCKET_NAME
				" runs as uid %u, neither root nor you: not trusted; remove the directory or set "
				"DFLOCK_RUNTIME_DIR",
				ask->dir, (unsigned)peer.uid);
	ask->pid = peer.pid;
	ask->uid = peer.uid;
	return 0;
}

static int ask_open_socket(struct ask *ask, char why[CLI_LINE_BYTES])
{
	struct timeval deadline = {.tv_sec = ASK_DEADLINE_S};
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	_Static_assert(PLACE_DIR_BYTES + sizeof(WIRE_SOCKET_NAME) <= sizeof(address.sun_path), "the path fits");
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/" WIRE_SOCKET_NAME, ask->dir);
	ask->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	/* The deadline for sending holds for connect() too, which waits while the queue of connections is full. */
	if (ask->fd >= 0 && !setsockopt(ask->fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline)) &&
	    !setsockopt(ask->fd, SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof(deadline)) &&
	    !connect(ask->fd, (struct sockaddr *)&address, sizeof(address)))
		return 0;
	/* A killed keeper leaves a socket on which no process listens. */
	if (errno == ENOENT || errno == ECONNREFUSED)
		return ask_fail(why, ENOENT, "no keeper runs for %s", ask->dir);
	if (errno == EAGAIN)
		return ask_fail(why, ETIMEDOUT,
				"the keeper at %s has accepted no connection for %d s; its log may say why", ask->dir,
				ASK_DEADLINE_S);
	return ask_fail(why, errno, "cannot connect to %s: %s", address.sun_path, strerror(errno));
}

static int ask_is_lock_of(void *arg, const struct procfs_lock *lock)
{
	const struct stat *st = arg;

	return lock->dev == st->st_dev && lock->ino == st->st_ino && lock->space == WIRE_FLOCK;
}

/* Has a process the lock of a keeper, or of its parent? The lock is looked at and not taken: a keeper that starts would find
 * it taken. */
static bool ask_is_kept(int dir)
{
	struct stat st;

	return fstatat(dir, RUNDIR_LOCK_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 && procfs_locks(ask_is_lock_of, &st) > 0;
}

static int ask_open_next(struct ask *ask, int dir, char why[CLI_LINE_BYTES])
{
	const struct timespec pause = {.tv_nsec = ASK_PAUSE_MS * 1000000L};
	int64_t deadline = cli_now_ms() + ASK_NEXT_S * 1000;
	int ret = ask_open_socket(ask, why);

	while (ret == -ENOENT && ask_is_kept(dir)) {
		ask_close(ask);
		if (cli_now_ms() >= deadline)
			return ask_fail(
				why, ETIMEDOUT,
				"the keeper for %s has ended, and its parent has started no other one for %d s; its log "
				"may say why",
				ask->dir, ASK_NEXT_S);
		nanosleep(&pause, NULL);
		ret = ask_open_socket(ask, why);
	}
	return ret;
}

int ask_connect(const struct place *place, struct ask *ask, char why[CLI_LINE_BYTES])
{
	int dir, ret;

	ask->fd = -1;
	ask->flags = ask->space = 0;
	ask->started = false;
	ask->place = place;
	ask->from = 0;
	ask->to = WIRE_EOF;
	ask->deadline_s = ASK_DEADLINE_S;
	ret = rundir_find(place, geteuid(), ask->dir, why, CLI_LINE_BYTES);
	if (ret == -ENOENT)
		return ask_fail(why, ENOENT, "no keeper runs, and none has run yet for this user");
	if (ret)
		return ret;
	dir = rundir_open(ask->dir, geteuid(), false, why, CLI_LINE_BYTES);
	if (dir < 0)
		return dir;
	ret = ask_open_next(ask, dir, why);
	if (!ret)
		ret = ask_check_peer(ask, why);
	if (ret)
		ask_close(ask);
	close(dir);
	return ret;
}

void ask_patience(struct ask *ask, int seconds)
{
	struct timeval deadline = {.tv_sec = seconds};

	if (setsockopt(ask->fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline)) == 0)
		ask->deadline_s = seconds;
}

void ask_close(struct ask *ask)
{
	if (ask->fd >= 0)
		close(ask->fd);
	ask->fd = -1;
}

bool ask_is_left(const struct ask *ask)
{
	char path[PLACE_DIR_BYTES + sizeof(PLACE_KEPT_NAME) + 1];

	snprintf(path, sizeof(path), "%s/" PLACE_KEPT_NAME, ask->dir);
	return ask->dir[0] && access(path, F_OK) == 0;
}

/* What all versions have in common (wire/msg.h) is enough for WIRE_STOP. */
static bool ask_is_common(const struct wire_reply *reply, size_t n)
{
	return n > offsetof(struct wire_reply, reason) && n <= sizeof(*reply) &&
	       memchr(reply->reason, '\0', n - offsetof(struct wire_reply, reason));
}

static int ask_receive(struct ask *ask, enum wire_op op, struct wire_reply *reply, int *memfd, char why[CLI_LINE_BYTES])
{
	/* The protocol sends at most one descriptor. */
	ssize_t n = passing_receive_one(ask->fd, reply, sizeof(*reply), memfd, 0);

	if (n == -EAGAIN)
		return ask_fail(why, ETIMEDOUT, "the keeper (pid %d) has not answered for %d s; its log may say why",
				(int)ask->pid, ask->deadline_s);
	if (n < 0 && n != -ECONNRESET)
		return ask_fail(why, (int)-n, "cannot receive the keeper's answer: %s", strerror((int)-n));
	if (n <= 0)
		return ask_fail(why, ECONNRESET,
				"the keeper (pid %d) closed the connection instead of answering; its log says why",
				(int)ask->pid);
	if ((size_t)n < 8 || reply->magic != WIRE_MAGIC)
		return ask_fail(why, EPROTO, "what answers at %s/" WIRE_SOCKET_NAME " is no keeper", ask->dir);
	if (reply->version != WIRE_VERSION && op == WIRE_STOP && ask_is_common(reply, (size_t)n))
		return 0;
	if (reply->version != WIRE_VERSION)
		return ask_fail(why, EPROTO,
				"the keeper (pid %d) speaks version %u of the protocol and this dflock version %u; "
				"`dflock stop` ends it, and the next program that locks starts the right one",
				(int)ask->pid, reply->version, WIRE_VERSION);
	if ((size_t)n != sizeof(*reply) || reply->size != sizeof(*reply) ||
	    !memchr(reply->reason, '\0', sizeof(reply->reason)))
		return ask_fail(why, EPROTO, "the keeper (pid %d) sent an answer that makes no sense", (int)ask->pid);
	return 0;
}

static int ask_send(struct ask *ask, const struct wire_request *request, const char *text, char why[CLI_LINE_BYTES])
{
	const struct iovec parts[] = {{.iov_base = (void *)request, .iov_len = sizeof(*request)},
				      {.iov_base = (void *)text, .iov_len = text ? strlen(text) : 0}};
	int ret;

	if (parts[1].iov_len >= WIRE_TEXT_BYTES)
		return ask_fail(why, ENAMETOOLONG, "a name is longer than %d bytes", WIRE_TEXT_BYTES - 1);
	ret = -passing_send(ask->fd, parts, 2, -1, 0);
	if (ret == EPIPE || ret == ECONNRESET)
		return ask_fail(
			why, ECONNRESET,
			"the keeper (pid %d) closed the connection before it was asked: it has ended, or serves "
			"too many; try again",
			(int)ask->pid);
	return ret ? ask_fail(why, ret, "cannot ask the keeper (pid %d): %s", (int)ask->pid, strerror(ret)) : 0;
}

int ask_about(struct ask *ask, enum wire_op op, const char *text, int *memfd, char why[CLI_LINE_BYTES])
{
	struct wire_request request = {.magic = WIRE_MAGIC,
				       .version = WIRE_VERSION,
				       .size = sizeof(request),
				       .op = (uint8_t)op,
				       .flags = ask->flags,
				       .space = ask->space,
				       .from = ask->from,
				       .to = ask->to};
	struct wire_reply reply;
	struct timespec now;
	int fd = -1, ret;

	clock_gettime(CLOCK_BOOTTIME, &now);
	request.sent_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
	/* Without a configuration, or if it cannot be examined, the keeper sees zeros, as from a program. */
	if (ask->place->config[0]) {
		(void)place_config_id(ask->place->config, &request.config);
		request.config_path = leases_hash(ask->place->config);
	}
	ret = ask_send(ask, &request, text, why);
	if (ret)
		return ret;
	ret = ask_receive(ask, op, &reply, &fd, why);
	if (!ret && reply.verdict == WIRE_REFUSED)
		ret = ask_fail(why, ENOLCK, "%s",
			       reply.reason[0] ? reply.reason : "the keeper refuses, without a reason");
	else if (!ret && reply.verdict == WIRE_WOULD_BLOCK)
		ret = ask_fail(why, EAGAIN, "%s", reply.reason);
	else if (!ret && reply.verdict != WIRE_OK)
		ret = ask_fail(why, EPROTO, "the keeper (pid %d) gave an answer that does not fit the question (%u)",
			       (int)ask->pid, reply.verdict);
	if (!ret)
		snprintf(why, CLI_LINE_BYTES, "%s", reply.reason);
	if (memfd && !ret)
		*memfd = fd;
	else if (fd >= 0)
		close(fd);
	return ret;
}

struct ask_answer {
	int fd;
	off_t read;
};

/* Reads by offset, because the keeper's descriptor shares the file position. */
static size_t ask_read(void *buffer, size_t size, void *arg)
{
	struct ask_answer *from = arg;
	ssize_t n = from->read < STATUS_MAX_BYTES ? pread(from->fd, buffer, size, from->read) : -1;

	from->read += n > 0 ? n : 0;
	return n < 0 ? (size_t)-1 : (size_t)n;
}

static int ask_answer(struct ask *ask, enum wire_op op, const char *text, json_t **answer, char why[CLI_LINE_BYTES])
{
	const struct timespec pause = {.tv_nsec = ASK_PAUSE_MS * 1000000L};
	int64_t deadline = cli_now_ms() + STATUS_TURN_S * 1000;
	struct ask_answer from = {.fd = -1};
	json_error_t error;
	int ret;

	*answer = NULL;
	/* A keeper of the system refuses the status only while it works on others for this user, or for all: cron starts many jobs at once. */
	while ((ret = ask_about(ask, op, text, &from.fd, why)) == -ENOLCK && op == WIRE_STATUS &&
	       cli_now_ms() < deadline)
		nanosleep(&pause, NULL);
	if (ret)
		return ret;
	if (from.fd < 0)
		return ask_fail(why, EPROTO, "the keeper's answer has no status with it");
	*answer = json_load_callback(ask_read, &from, 0, &error);
	close(from.fd);
	if (json_is_object(*answer))
		return 0;
	json_decref(*answer);
	*answer = NULL;
	return ask_fail(why, EPROTO, "the keeper's answer makes no sense (%s); is it another version's?", error.text);
}

int ask_once(enum wire_op op, unsigned flags, const char *text, json_t **answer, char why[CLI_LINE_BYTES])
{
	struct place place;
	struct ask ask;
	int ret;

	cli_place(&place, NULL);
	if (answer)
		*answer = NULL;
	ret = ask_connect(&place, &ask, why);
	ask.flags = flags;
	if (!ret)
		ret = answer ? ask_answer(&ask, op, text, answer, why) : ask_about(&ask, op, text, NULL, why);
	ask_close(&ask);
	return ret;
}

json_t *ask_json(struct ask *ask, enum wire_op op, const char *text, char why[CLI_LINE_BYTES])
{
	json_t *answer;

	(void)ask_answer(ask, op, text, &answer, why);
	return answer;
}

#define PAUSE_MS 50

json_t *store_await(struct ask *ask, char why[CLI_LINE_BYTES])
{
	const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
	int64_t deadline = cli_now_ms() + STORE_PATIENCE_MS;
	json_t *status = ask_json(ask, WIRE_STATUS, NULL, why);

	/* While the store is away, each answer may take a second: the keeper asks the store for the cluster's part. */
	while (status && !field_flag(json_object_get(status, "store"), "up") && cli_now_ms() < deadline) {
		json_decref(status);
		nanosleep(&pause, NULL);
		status = ask_json(ask, WIRE_STATUS, NULL, why);
	}
	return status;
}
