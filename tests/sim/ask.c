/*
 * What the shim does beyond its locks: it asks the keeper (shim/ask.h), over a real socket, and looks at the page
 * (shim/protect.h). Only the wait for an answer belongs to the scheduler.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shim/call.h"
#include "shim/ask.h"
#include "shim/note.h"
#include "wire/sys.h"
#include "tests/sim/sim.h"
#include "wire/place.h"

static unsigned made; /* sockets */

static int connect_keeper(struct program *p)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX}, name = {.sun_family = AF_UNIX};

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%.90s/%s", p->host->run, WIRE_SOCKET_NAME);
	p->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (p->sock < 0)
		return -errno;
	/* Its name tells the keeper's machine which program asks (clocks.c). */
	snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "dflock-sim-%d-%d-%u", (int)getpid(), (int)p->pid,
		 ++made);
	if (bind(p->sock, (struct sockaddr *)&name, sizeof(name)) != 0)
		sim_fail("bind: %s", strerror(errno));
	if (connect(p->sock, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
		int err = errno;

		close(p->sock);
		p->sock = -1;
		return -err;
	}
	loop_poll(p->host);
	return 0;
}

int ask_open(struct ask *ask, const struct protect_by *by, const struct intent *want, int fd, int attempt)
{
	struct program *p = program_of_task();
	int rc;

	program_sleep(p, rng_delay(&p->rng, 20 * MS));
	*ask = (struct ask){.sock = -1, .fd = fd, .nonblock = want->nonblock};
	ask->deadline_ns = want->nonblock ? sys_clock_ns(CLOCK_MONOTONIC) + ASK_PATIENCE_NS : 0;
	rc = connect_keeper(p);
	if (rc < 0) { /* its parent starts another one */
		program_sleep(p, 50 * MS << (attempt < 3 ? attempt : 3));
		rc = connect_keeper(p);
	}
	ask->sock = p->sock;
	return rc < 0 ? -ECONNRESET : 0;
}

int ask_send(struct ask *ask, const struct protect_by *by, struct wire_request request, int fd)
{
	struct program *p = program_of_task();
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec iov = {.iov_base = &request, .iov_len = sizeof(request)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	request.magic = WIRE_MAGIC;
	request.version = WIRE_VERSION;
	request.size = sizeof(request);
	request.config = by->mine.id;
	request.config_path = by->mine.path_hash;
	if (fd >= 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		control.align = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
		memcpy(CMSG_DATA(&control.align), &fd, sizeof(int));
	}
	request.sent_ns = sys_clock_ns(CLOCK_BOOTTIME);
	program_sleep(p, rng_delay(&p->rng, 20 * MS));
	/* It is not if its keeper died before: then nobody was asked. */
	bool sent = sendmsg(ask->sock, &msg, MSG_NOSIGNAL) >= 0;
	if (!sent && errno != EPIPE && errno != ECONNRESET)
		sim_fail("p%d cannot send: %s", p->id, strerror(errno));
	if (sent && !p->caught)
		lives_call(p, request.flags & WIRE_F_HAVE ? 'Q' : 'q');
	loop_poll(p->host);
	return 0;
}

int ask_receive(struct ask *ask, struct wire_reply *reply)
{
	struct program *p = program_of_task();

	for (;;) {
		ssize_t n = recv(ask->sock, reply, sizeof(*reply), MSG_TRUNC | MSG_DONTWAIT);

		if (n == sizeof(*reply)) {
			if (reply->verdict == WIRE_GRANTED && !p->caught)
				lives_call(p, 'g');
			return 0;
		}
		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return -ECONNRESET;
		if (n > 0 || errno != EAGAIN)
			sim_fail("p%d got an answer of %zd bytes: %s", p->id, n, strerror(errno));
		if (p->interrupted && !ask->nonblock) {
			p->interrupted = false;
			return -EINTR;
		}
		p->receives = true;
		if (ask->nonblock)
			program_sleep(p, 31 * SEC);
		else
			program_sleep(p, PROGRAM_FOREVER);
		p->receives = false;
		if (ask->nonblock && sys_clock_ns(CLOCK_MONOTONIC) > ask->deadline_ns)
			return -ENOLCK;
	}
}

int64_t ask_clock_ns(void) { return sys_clock_ns(CLOCK_BOOTTIME); }

/* No rule here has on_refused. */
bool ask_is_patient(const struct ask *ask) { return false; }

int ask_unserved(struct ask *ask, const char *what, bool absent)
{
	note_refused(ask->fd, "%s", what);
	return -ENOLCK;
}

int await_keeper(struct ask *ask, const struct protect_by *by, unsigned tries)
{
	sim_fail("a program waits for a keeper");
}

enum wire_on_refused protect_on_refused(int fd) { return WIRE_ON_REFUSED_REFUSE; }

void ask_close(struct ask *ask)
{
	struct program *p = program_of_task();

	if (ask->sock < 0)
		return;
	program_sleep(p, rng_delay(&p->rng, 20 * MS));
	close(ask->sock);
	ask->sock = p->sock = -1;
	loop_poll(p->host);
}

/* --- shim/protect.h --- */

bool protect_is_kernels(int fd) { return false; }
bool protect_kernel_refuses(int fd) { return false; }
bool protect_page_is_near(const struct protect_look *look) { return true; }

struct protect_by sim_by(const struct host *host)
{
	struct protect_by by = {.config = host->config, .euid = geteuid()};

	place_config_id(host->config, &by.mine.id);
	snprintf(by.dir, sizeof(by.dir), "%.90s", host->run);
	return by;
}

enum protect protect_ask(int fd, struct protect_look *look)
{
	struct host *host = program_of_task()->host;

	look->by = sim_by(host);
	if (!look->page && rng_chance(&program_of_task()->rng, 500))
		look->page = host_page(host);
	return PROTECT_ASK;
}

enum protect protect_again(int fd, const struct protect_look *look) { return PROTECT_ASK; }

/* As without DFLOCK_VERBOSE. */
int blocker_tell(const struct call *c) { return 0; }
bool blocker_tells(void) { return false; }
