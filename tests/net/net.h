/*
 * What the programs of the net's prototype share: a seccomp filter that hands lock calls to a listener, a job under such a
 * filter, and what /proc says of a thread. docs/net.md has the findings that these programs show.
 */
#ifndef DFLOCK_TESTS_NET_H
#define DFLOCK_TESTS_NET_H

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KILLABLE SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV /* Linux 5.19 */
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, uint64_t) /* Linux 6.6 */
#endif
#define NET_SYNC_WAKE_UP 1UL
#define RESTARTSYS       512 /* the kernel's own; a program must never see it */
#define NET_DEADLINE_MS  20000

#if defined(__x86_64__)
#define NET_ARCH       AUDIT_ARCH_X86_64
#define NET_ARCH_32    AUDIT_ARCH_I386
#define NET_FLOCK_32   143
#define NET_FCNTL_32   55
#define NET_FCNTL64_32 221
#elif defined(__aarch64__)
#define NET_ARCH       AUDIT_ARCH_AARCH64
#define NET_ARCH_32    AUDIT_ARCH_ARM
#define NET_FLOCK_32   143
#define NET_FCNTL_32   55
#define NET_FCNTL64_32 221
#else
#error "x86-64 and arm64 only"
#endif

#define DIE(...)                                                                                                       \
	do {                                                                                                           \
		fprintf(stderr, __VA_ARGS__);                                                                          \
		fprintf(stderr, " (line %d, %s)\n", __LINE__, strerror(errno));                                        \
		exit(99);                                                                                              \
	} while (0)

/* --- the filter --- */

struct net_program {
	struct sock_filter code[64];
	unsigned short length;
};

static inline void net_emit(struct net_program *p, struct sock_filter insn) { p->code[p->length++] = insn; }

#define NET_LOAD(p, field)                                                                                             \
	net_emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field)))
#define NET_JEQ(p, k, yes, no) net_emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, k, yes, no))
#define NET_RETURN(p, what)    net_emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what))

/* If the number loaded is that of flock: LOCK_UN passes, the rest is handed over. */
static inline void net_emit_flock(struct net_program *p, unsigned nr)
{
	NET_JEQ(p, nr, 0, 5);
	NET_LOAD(p, args[1]);
	net_emit(p, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~(unsigned)LOCK_NB));
	NET_JEQ(p, LOCK_UN, 0, 1);
	NET_RETURN(p, SECCOMP_RET_ALLOW);
	NET_RETURN(p, SECCOMP_RET_USER_NOTIF);
}

/* If the number loaded is that of fcntl: these commands are handed over, the rest passes. */
static inline void net_emit_fcntl(struct net_program *p, unsigned nr, const unsigned char *commands,
				  unsigned char count)
{
	NET_JEQ(p, nr, 0, count + 3);
	NET_LOAD(p, args[1]);
	for (unsigned char i = 0; i < count; i++)
		NET_JEQ(p, commands[i], count - i, 0);
	NET_RETURN(p, SECCOMP_RET_ALLOW);
	NET_RETURN(p, SECCOMP_RET_USER_NOTIF);
}

/* F_SETLK 6, F_SETLKW 7, F_SETLK64 13, F_SETLKW64 14, F_OFD_SETLK 37, F_OFD_SETLKW 38. */
static inline void net_build(struct net_program *p)
{
	static const unsigned char native[] = {6, 7, 37, 38}, compat[] = {6, 7, 13, 14, 37, 38};
	unsigned short jump;

	p->length = 0;
	NET_LOAD(p, arch);
	jump = p->length;
	NET_JEQ(p, NET_ARCH, 0, 0);
	NET_LOAD(p, nr);
	net_emit_flock(p, SYS_flock);
	net_emit_fcntl(p, SYS_fcntl, native, sizeof(native));
	NET_RETURN(p, SECCOMP_RET_ALLOW);
	p->code[jump].jf = p->length - jump - 1;
	NET_JEQ(p, NET_ARCH_32, 1, 0);
	NET_RETURN(p, SECCOMP_RET_ALLOW);
	NET_LOAD(p, nr);
	net_emit_flock(p, NET_FLOCK_32);
	net_emit_fcntl(p, NET_FCNTL_32, compat, sizeof(compat));
	net_emit_fcntl(p, NET_FCNTL64_32, compat, sizeof(compat));
	NET_RETURN(p, SECCOMP_RET_ALLOW);
}

/* The listener, or -errno. Without CAP_SYS_ADMIN the process gives up what setuid programs would bring. */
static inline int net_install(unsigned flags)
{
	struct net_program p;
	struct sock_fprog prog = {.filter = p.code};
	long ret;

	net_build(&p);
	prog.len = p.length;
	flags |= SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
	ret = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
	if (ret < 0 && errno == EACCES && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
		ret = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
	return ret < 0 ? -errno : (int)ret;
}

/* --- a job under the filter --- */

static inline void net_send_fd(int socket, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec io = {&byte, 1};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (sendmsg(socket, &m, 0) != 1)
		DIE("cannot pass the listener");
}

static inline int net_receive_fd(int socket)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec io = {&byte, 1};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	int fd = -1;

	if (recvmsg(socket, &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

/* Runs job(arg) in a child under the filter; its listener in *listener. The child ends with what job() returns. */
static inline pid_t net_spawn(int (*job)(void *arg), void *arg, unsigned flags, int *listener)
{
	int pair[2], fd;
	pid_t pid;

	fflush(NULL);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 || (pid = fork()) < 0)
		DIE("cannot start a job");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fd = net_install(flags);
		if (fd < 0) {
			fprintf(stderr, "cannot install the filter: %s\n", strerror(-fd));
			_exit(98);
		}
		net_send_fd(pair[1], fd);
		close(fd);
		close(pair[0]);
		close(pair[1]);
		fd = job(arg);
		fflush(NULL);
		_exit(fd);
	}
	close(pair[1]);
	*listener = net_receive_fd(pair[0]);
	close(pair[0]);
	return pid;
}

static inline int net_end(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* --- calls --- */

/* The next call. False: none within the time, or no filtered process is left. */
static inline bool net_next(int listener, struct seccomp_notif *q, int timeout_ms)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};

	while (poll(&p, 1, timeout_ms) > 0 && p.revents & POLLIN) {
		memset(q, 0, sizeof(*q));
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, q) == 0)
			return true;
		if (errno != ENOENT && errno != EINTR)
			return false;
	}
	return false;
}

static inline int net_answer(int listener, uint64_t id, int error, unsigned flags)
{
	struct seccomp_notif_resp r = {.id = id, .error = error, .flags = flags};

	return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &r) < 0 ? -errno : 0;
}

static inline int net_continue(int listener, uint64_t id)
{
	return net_answer(listener, id, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE);
}

/* --- what /proc says of a thread --- */

/* R, S, D, t, T, Z; 0 if there is none. */
static inline char net_state(pid_t tid)
{
	char path[64], text[512], *end;
	int fd;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", tid, tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		snprintf(path, sizeof(path), "/proc/%d/stat", tid);
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	end = strrchr(text, ')');
	return end && end[1] == ' ' ? end[2] : 0;
}

/* The system call in which the thread sleeps; -1: none, or it runs. */
static inline long net_sleeps_in(pid_t tid)
{
	char path[64], text[256];
	int fd;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/syscall", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return -1;
	text[n] = 0;
	return text[0] >= '0' && text[0] <= '9' ? strtol(text, NULL, 10) : -1;
}

#define NET_PAUSE() nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL)

/* Waits until the condition holds; else the program ends. */
#define NET_UNTIL(condition)                                                                                           \
	do {                                                                                                           \
		struct timespec from_, now_;                                                                           \
		clock_gettime(CLOCK_MONOTONIC, &from_);                                                                \
		while (!(condition)) {                                                                                 \
			clock_gettime(CLOCK_MONOTONIC, &now_);                                                         \
			if ((now_.tv_sec - from_.tv_sec) * 1000 > NET_DEADLINE_MS)                                     \
				DIE("not within %d ms: %s", NET_DEADLINE_MS, #condition);                              \
			NET_PAUSE();                                                                                   \
		}                                                                                                      \
	} while (0)

/* Does the kernel refuse an exclusive lock on a description of our own, in the space of flock() or of records? */
static inline bool net_is_locked(const char *path, bool record)
{
	struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open(path, O_RDWR | O_CLOEXEC);
	bool locked;

	if (fd < 0)
		DIE("%s", path);
	locked = (record ? fcntl(fd, F_OFD_SETLK, &f) : flock(fd, LOCK_EX | LOCK_NB)) < 0;
	close(fd);
	return locked;
}

/* Does the kernel list a request of this process that waits for a lock? */
static inline bool net_waits(pid_t pid)
{
	char line[256], want[32];
	FILE *f = fopen("/proc/locks", "re");
	bool found = false;

	snprintf(want, sizeof(want), " %d ", pid);
	while (f && fgets(line, sizeof(line), f))
		found = found || (strstr(line, "->") && strstr(line, want));
	if (f)
		fclose(f);
	return found;
}

/* --- findings --- */

struct finding {
	const char *name;
	void (*show)(void);
};

static bool net_differs;

/* One line for each thing that was seen; the program fails if one is not as docs/net.md says. */
#define SHOW(is, ...)                                                                                                  \
	do {                                                                                                           \
		bool is_ = (is);                                                                                       \
		printf("%s ", is_ ? "seen:" : "NOT SEEN:");                                                            \
		printf(__VA_ARGS__);                                                                                   \
		printf("\n");                                                                                          \
		fflush(stdout);                                                                                        \
		net_differs = net_differs || !is_;                                                                     \
	} while (0)

static inline int net_main(int argc, char **argv, const struct finding *findings)
{
	for (const struct finding *f = findings; argc == 2 && f->name; f++)
		if (strcmp(argv[1], f->name) == 0) {
			f->show();
			return net_differs;
		}
	fprintf(stderr, "usage: %s FINDING\n", argv[0]);
	for (const struct finding *f = findings; f->name; f++)
		fprintf(stderr, "  %s\n", f->name);
	return 2;
}

/* A new file of this process, and its name in path (at least 64 bytes). */
static inline int net_file(char *path)
{
	int fd;

	strcpy(path, "/dev/shm/dflock-net-XXXXXX");
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		DIE("cannot make a file");
	return fd;
}

#endif
