#include "shim/name.h"

#include <string.h>
#include <sys/stat.h>

#include "wire/sys.h"
#include "wire/text.h"

#define DELETED " (deleted)"

/* Was the file made by O_TMPFILE? The flags of its description say so, or, if it was opened again through /proc, the
 * name "#INODE" that the kernel gives such a file. */
static bool name_is_temporary(int fd, const char *name, uint64_t inode)
{
	const char *base = strrchr(name, '/');
	char made[32];
	long flags = sys_fcntl(fd, F_GETFL, 0L);

	if (flags >= 0 && (flags & O_TMPFILE) == O_TMPFILE)
		return true;
	text_print(made, sizeof(made), "/#%llu", (unsigned long long)inode);
	return base && strcmp(base, made) == 0;
}

long name_link(int fd, char *name, size_t size)
{
	char link[36];

	text_print(link, sizeof(link), "/proc/thread-self/fd/%d", fd);
	return sys(readlinkat, AT_FDCWD, link, name, size);
}

/* A file that was opened by its handle (open_by_handle_at(2)) while no path to it was in memory is shown as a root of its own. */
static int name_check(int fd, const char *name)
{
	struct stat st;

	return strcmp(name, "/") != 0 || (sys_fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) ? 0 : -ENOENT;
}

static bool name_leads_to(const char *name, const struct statx *file)
{
	struct statx st;

	return sys(statx, AT_FDCWD, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_INO, &st) ==
		       0 &&
	       st.stx_ino == file->stx_ino && st.stx_dev_major == file->stx_dev_major &&
	       st.stx_dev_minor == file->stx_dev_minor;
}

int name_read(int fd, char name[PATH_MAX])
{
	const size_t cut = sizeof(DELETED) - 1;
	const long n = name_link(fd, name, PATH_MAX);
	struct statx st;
	long ret;

	if (n == -ENAMETOOLONG || n == PATH_MAX)
		return NAME_NONE;
	if (n < 0)
		return (int)n;
	name[n] = '\0';
	if ((size_t)n <= cut || memcmp(name + n - cut, DELETED, cut) != 0)
		return name_check(fd, name);
	/* The file's own name may end like that. Its server is asked, since another machine may have deleted it. */
	ret = sys(statx, fd, "", AT_EMPTY_PATH, STATX_NLINK | STATX_INO, &st);
	if (ret < 0)
		return (int)ret;
	/* Of a file with another link, the count does not tell that this name is gone. */
	if (st.stx_nlink > 0 && name_leads_to(name, &st))
		return 0;
	name[(size_t)n - cut] = '\0';
	if (!name_is_temporary(fd, name, st.stx_ino))
		return name_check(fd, name);
	name[(size_t)n - cut] = *DELETED; /* it has another name by now, or none */
	return st.stx_nlink > 0 ? 0 : NAME_NONE;
}

bool name_is_none(int fd)
{
	char name[PATH_MAX];

	return name_read(fd, name) == NAME_NONE;
}
