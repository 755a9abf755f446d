/*
 * nopass PID: traces a process, and keeps SIGSTOP from it, as gdb does after "handle SIGSTOP nopass". Says "traced"; then
 * "SIGSTOP" when the first one comes, and lets the process go on, without it, when there is a line on standard input, and
 * at once each time that another one comes. Ends with the process.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

int main(int argc, char **argv)
{
	pid_t pid = argc == 2 ? (pid_t)atoi(argv[1]) : 0;
	int status, first = 1;
	char line[16];

	if (!pid || ptrace(PTRACE_SEIZE, pid, 0, 0) != 0) {
		perror("nopass");
		return EXIT_FAILURE;
	}
	puts("traced");
	fflush(stdout);
	while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
		int number = status >> 16 ? 0 : WSTOPSIG(status);

		if (number == SIGSTOP && first) {
			first = 0;
			puts("SIGSTOP");
			fflush(stdout);
			if (!fgets(line, sizeof(line), stdin))
				return EXIT_SUCCESS;
		}
		ptrace(PTRACE_CONT, pid, 0, number == SIGSTOP ? 0 : number);
	}
	return EXIT_SUCCESS;
}
