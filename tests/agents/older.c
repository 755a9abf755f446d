/*
 * older NUMBER[:EPERM|:kill] PROGRAM [ARGUMENT...]: runs the program as on a kernel that does not have the system call of this number; or,
 * as in a container with such a seccomp filter, the call fails with EPERM, or ends the process.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	const char *how = argc > 2 ? strchr(argv[1], ':') : NULL;
	const unsigned verdict = !how                        ? SECCOMP_RET_ERRNO | ENOSYS
				 : strcmp(how, ":kill") == 0 ? SECCOMP_RET_KILL_PROCESS
							     : SECCOMP_RET_ERRNO | EPERM;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, argc > 2 ? (unsigned)atoi(argv[1]) : 0, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, verdict),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	/* As root without no_new_privs, so that sudo works. */
	if (argc < 3 || (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0 &&
			 (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
			  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0))) {
		perror("older");
		return EXIT_FAILURE;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return EXIT_FAILURE;
}
