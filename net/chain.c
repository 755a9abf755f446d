/* See chain.h. */
#include "net/chain.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/abi.h"
#include "net/filter.h"
#include "net/lockcall.h"
#include "net/thread.h"
#include "shim/ask.h"
#include "wire/sys.h"
#include "wire/passing.h"

#define PATIENCE_MS 10000

/* What the child's struct flock says, so that it is known to have been read. */
#define CHAIN_START 0x64666c6f636b

int chain_send(int socket, int listener)
{
	return passing_send(socket, &(struct iovec){(void *)"", 1}, 1, listener, 0);
}

int chain_receive(int socket)
{
	char byte;
	int listener;

	passing_receive_one(socket, &byte, 1, &listener, 0);
	return listener;
}

/* The child. Unlocking its end of the socket changes nothing. */
static _Noreturn void chain_be_child(int socket)
{
	const struct flock64 lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = CHAIN_START};
	const int listener = filter_install(0);

	if (listener < 0)
		_exit(-listener);
	if (chain_send(socket, listener) < 0)
		_exit(CHAIN_FAILED);
	close(listener);
	_exit(sys(fcntl, socket, ABI_OFD_SETLK, &lock) == 0 ? 0 : CHAIN_FAILED);
}

int chain_try(int socket)
{
	/* Without a signal at its end: the job must not find one pending. */
	const long child = start_fork(0);
	int status;

	if (child == 0)
		chain_be_child(socket);
	if (child < 0)
		return (int)-child;
	while (sys(wait4, child, &status, __WCLONE, NULL) == -EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : CHAIN_FAILED;
}

/* Everything that net/decide.c does with a thread. */
static const char *chain_look(struct thread *t, const struct seccomp_notif *notif, int opened)
{
	static const char rights[] =
		"the net may not look into the job's processes: only root may where kernel.yama.ptrace_scope is not 0, /proc "
		"is mounted with hidepid, or a container forbids pidfd_getfd and ptrace";
	unsigned char bytes[LOCKCALL_BYTES];
	struct lockcall call;
	int copy;

	lockcall_read(&notif->data, &call);
	copy = opened < 0 ? opened : thread_copy(t, call.fd);
	if (copy >= 0)
		close(copy);
	if (copy == -ENOSYS)
		return "this kernel is too old for the net, which needs Linux 5.19";
	/* Of another /proc, this is another process: nothing is written there. */
	if (copy < 0 || thread_read(t, call.at, bytes, sizeof(bytes)) < 0 ||
	    lockcall_parse(call.form, bytes).l_start != CHAIN_START)
		return rights;
	return thread_write(t, call.at, bytes, sizeof(bytes)) < 0 || thread_is_signalled(t) < 0 ? rights : NULL;
}

const char *chain_answer(int listener)
{
	struct pollfd in = {.fd = listener, .events = POLLIN};
	struct seccomp_notif notif = {.id = 0};
	struct seccomp_notif_resp response = {.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
	const char *why;
	struct thread t;
	int opened;

	if (poll(&in, 1, PATIENCE_MS) != 1 || ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &notif) < 0)
		return "a lock call of a process under the filter does not reach the net";
	opened = thread_open(&t, listener, &notif);
	why = chain_look(&t, &notif, opened);
	thread_close(&t);
	response.id = notif.id;
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response) < 0 && !why)
		why = "a lock call that the net has received cannot be continued";
	return why;
}
