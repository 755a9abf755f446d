/*
 * A program without a libc: `bare FILE [COMMAND]` takes flock() exclusively, waiting, by an inline system call; says "had"; and
 * waits for the end of its input. With a COMMAND, the record lock of the whole file, by fcntl(). Built for x86-64, i386, arm64 or
 * AArch32 with -nostdlib -static; with -DX32 it is an x86-64 program whose lock call is x32's. Its exit status is the errno.
 */
#define LOCK_EX 2

#ifdef X32
#define KIND 0x40000000
#else
#define KIND 0
#endif

#if defined(__x86_64__)
enum { SYS_READ = 0, SYS_WRITE = 1, SYS_FCNTL = 72, SYS_FLOCK = 73, SYS_EXIT = 60, SYS_OPENAT = 257 };
#elif defined(__arm__)
enum { SYS_READ = 3, SYS_WRITE = 4, SYS_FCNTL = 221, SYS_FLOCK = 143, SYS_EXIT = 1, SYS_OPENAT = 322 };
#elif defined(__i386__)
enum { SYS_READ = 3, SYS_WRITE = 4, SYS_FCNTL = 221, SYS_FLOCK = 143, SYS_EXIT = 1, SYS_OPENAT = 295 };
#else
enum { SYS_READ = 63, SYS_WRITE = 64, SYS_FCNTL = 25, SYS_FLOCK = 32, SYS_EXIT = 93, SYS_OPENAT = 56 };
#endif

#define AT_FDCWD -100
#define O_RDWR   2
#if defined(__i386__) || defined(__arm__)
#define F_SETLKW 14 /* F_SETLKW64 */
#else
#define F_SETLKW 7
#endif

#ifdef __i386__
#define NARROW __attribute__((packed, aligned(4))) /* its struct flock64 has no padding before start */
#else
#define NARROW
#endif

void bare_main(long *stack);

static long call(long nr, long a, long b, long c, long d)
{
	long ret;

#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;

	__asm__ volatile("syscall" : "=a"(ret) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
#elif defined(__i386__)
	__asm__ volatile("int $0x80" : "=a"(ret) : "a"(nr), "b"(a), "c"(b), "d"(c), "S"(d) : "memory");
#elif defined(__arm__)
	register long r7 __asm__("r7") = nr, r0 __asm__("r0") = a, r1 __asm__("r1") = b, r2 __asm__("r2") = c,
			 r3 __asm__("r3") = d;

	__asm__ volatile("svc 0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2), "r"(r3) : "memory");
	ret = r0;
#else
	register long x8 __asm__("x8") = nr, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c,
			 x3 __asm__("x3") = d;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	ret = x0;
#endif
	return ret;
}

void bare_main(long *stack)
{
	struct {
		short type, whence;
		long long start, length;
		int pid;
	} NARROW narrow = {1, 0, 0, 0, 0};
	struct {
		short type, whence;
		long start, length;
		int pid;
	} wide = {1, 0, 0, 0, 0};
	long fd = call(SYS_OPENAT, AT_FDCWD, stack[2], O_RDWR, 0), ret;
	char byte;

	if (stack[0] < 3)
		ret = call(SYS_FLOCK | KIND, fd, LOCK_EX, 0, 0);
	else
		ret = call(SYS_FCNTL | KIND, fd, F_SETLKW, sizeof(long) == 4 ? (long)&narrow : (long)&wide, 0);
	if (ret == 0) {
		call(SYS_WRITE, 1, (long)"had\n", 4, 0);
		call(SYS_READ, 0, (long)&byte, 1, 0);
	}
	call(SYS_EXIT, -ret, 0, 0, 0);
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall bare_main\n");
#elif defined(__i386__)
__asm__(".globl _start\n_start:\n\tmov %esp, %eax\n\tand $-16, %esp\n\tsub $12, %esp\n\tpush %eax\n\tcall bare_main\n");
#elif defined(__arm__)
__asm__(".globl _start\n_start:\n\tmov r0, sp\n\tbl bare_main\n");
#else
__asm__(".globl _start\n_start:\n\tmov x0, sp\n\tbl bare_main\n");
#endif
