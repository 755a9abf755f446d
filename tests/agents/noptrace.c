/*
 * noptrace PROGRAM ARGUMENT...: runs a program. ptrace() fails with EPERM for the program and all that it starts, as in
 * a container with such a seccomp filter.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = sizeof(code) / sizeof(*code), .filter = code};

	/* Without no_new_privs, so that sudo works: as root. */
	if (argc < 2 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
		perror("noptrace");
		return EXIT_FAILURE;
	}
	execvp(argv[1], argv + 1);
	perror(argv[1]);
	return EXIT_FAILURE;
}
