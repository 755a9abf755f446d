/*
 * A program whose first lock call goes through libc, and its second past it, with all registers as the first one left them: afterkey
 * FILE flock|fcntl. It says "first" and "second" when the calls have returned 0. Both take the same lock, which they may.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The sixth argument is what its register has. */
static long past_libc(long number, long fd, long command, void *arg)
{
#if defined(__x86_64__)
	__asm__ volatile("syscall" : "+a"(number) : "D"(fd), "S"(command), "d"(arg) : "rcx", "r11", "memory");
	return number;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = fd;
	register long x1 __asm__("x1") = command;
	register void *x2 __asm__("x2") = arg;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
#else
	return syscall(number, fd, command, arg);
#endif
}

int main(int argc, char **argv)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = argc == 3 ? open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
	int is_flock = argc == 3 && strcmp(argv[2], "flock") == 0;
	long ret;

	if (fd < 0)
		return 2;
	setvbuf(stdout, NULL, _IONBF, 0);
	if ((is_flock ? flock(fd, LOCK_EX | LOCK_NB) : fcntl(fd, F_SETLK, &lock)) != 0)
		return 3;
	if (is_flock)
		ret = past_libc(SYS_flock, fd, LOCK_EX | LOCK_NB, NULL);
	else
		ret = past_libc(SYS_fcntl, fd, F_SETLK, &lock);
	puts("first");
	if (ret != 0)
		return 4;
	puts("second");
	return 0;
}
