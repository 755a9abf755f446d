#include "shim/name.h"

#include <string.h>
#include <sys/stat.h>

#include "shim/sys.h"
#include "wire/text.h"

#define DELETED " (deleted)"

/* Was the file made by O_TMPFILE? The flags of its description say so, or, if it was opened again through /proc, the
 * name "#INODE" that the kernel gives such a file. */
static bool name_is_temporary(int fd, const char *name, ino_t inode)
{
	const char *base = strrchr(name, '/');
	char made[32];
	struct text text;
	long flags = sys_fcntl(fd, F_GETFL, 0L);

	if (flags >= 0 && (flags & O_TMPFILE) == O_TMPFILE)
		return true;
	text_init(&text, made, sizeof(made));
	text_add(&text, "/#");
	text_add_number(&text, (long)inode);
	return base && strcmp(base, made) == 0;
}

int name_read(int fd, char name[PATH_MAX])
{
	char link[32];
	struct text text;
	struct stat st;
	long n;
	size_t cut = sizeof(DELETED) - 1;

	text_init(&text, link, sizeof(link));
	text_add(&text, "/proc/thread-self/fd/");
	text_add_number(&text, fd);
	n = sys(readlinkat, AT_FDCWD, link, name, (long)PATH_MAX);
	if (n == -ENAMETOOLONG || n == PATH_MAX)
		return NAME_NONE;
	if (n < 0)
		return (int)n;
	name[n] = '\0';
	if ((size_t)n <= cut || memcmp(name + n - cut, DELETED, cut) != 0)
		return 0;
	/* The file's own name may end like that. */
	if (sys_fstat(fd, &st) < 0)
		return -errno;
	if (st.st_nlink > 0)
		return 0;
	name[(size_t)n - cut] = '\0';
	return name_is_temporary(fd, name, st.st_ino) ? NAME_NONE : 0;
}

bool name_is_none(int fd)
{
	char name[PATH_MAX];

	return name_read(fd, name) == NAME_NONE;
}
