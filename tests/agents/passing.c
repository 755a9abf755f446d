/*
 * Passes a locked descriptor from one process to another (SCM_RIGHTS). One command a line, one answer a line:
 *
 *   lock FILE    opens and locks it: "held"           listen SOCKET   "ok": a sender may connect
 *   send SOCKET  the descriptor: "ok" when it is in the socket, whether or not a process has received it
 *   receive      from the process that has connected: "ok"        close           its own copy: "ok"
 *
 * If a command fails, the answer is the error's name.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int held = -1, listening = -1;

static int at_socket(const char *path, int (*what)(int, const struct sockaddr *, socklen_t))
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd < 0 || what(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		return -1;
	return fd;
}

/* Sends `held`, or receives it. */
static int pass(int sock, ssize_t (*how)(int, struct msghdr *, int))
{
	char byte = 'x';
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

	memcpy(CMSG_DATA(&control.head), &held, sizeof(held));
	if (sock < 0 || how(sock, &msg, 0) != 1)
		return -1;
	memcpy(&held, CMSG_DATA(&control.head), sizeof(held));
	return 0;
}

static ssize_t send_it(int sock, struct msghdr *msg, int flags) { return sendmsg(sock, msg, flags); }

static int do_lock(const char *file)
{
	held = open(file, O_RDWR);
	return held < 0 ? -1 : flock(held, LOCK_EX);
}

static int do_listen(const char *path)
{
	listening = at_socket(path, bind);
	return listening < 0 ? -1 : listen(listening, 1);
}

static int run(const char *command, const char *arg)
{
	if (strcmp(command, "lock") == 0)
		return do_lock(arg);
	if (strcmp(command, "listen") == 0)
		return do_listen(arg);
	if (strcmp(command, "send") == 0)
		return pass(at_socket(arg, connect), send_it);
	if (strcmp(command, "receive") == 0)
		return pass(accept(listening, NULL, NULL), recvmsg);
	if (strcmp(command, "close") == 0)
		return close(held);
	fprintf(stderr, "passing: no such command: %s\n", command);
	exit(2);
}

int main(void)
{
	char line[4096], command[16], arg[4000];

	while (fgets(line, sizeof(line), stdin)) {
		arg[0] = '\0';
		if (sscanf(line, "%15s %3999s", command, arg) < 1)
			return 2;
		if (run(command, arg) < 0)
			puts(strerrorname_np(errno));
		else
			puts(strcmp(command, "lock") == 0 ? "held" : "ok");
		fflush(stdout);
	}
	return 0;
}
