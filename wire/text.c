#include "wire/text.h"

#include <errno.h>
#include <string.h>

/* strerror() translates and may allocate, and strerrordesc_np() is not in every glibc. */
static const char *const descriptions[] = {
	[EPERM] = "Operation not permitted",
	[ENOENT] = "No such file or directory",
	[ESRCH] = "No such process",
	[EINTR] = "Interrupted system call",
	[EIO] = "Input/output error",
	[ENXIO] = "No such device or address",
	[E2BIG] = "Argument list too long",
	[ENOEXEC] = "Exec format error",
	[EBADF] = "Bad file descriptor",
	[ECHILD] = "No child processes",
	[EAGAIN] = "Resource temporarily unavailable",
	[ENOMEM] = "Cannot allocate memory",
	[EACCES] = "Permission denied",
	[EFAULT] = "Bad address",
	[ENOTBLK] = "Block device required",
	[EBUSY] = "Device or resource busy",
	[EEXIST] = "File exists",
	[EXDEV] = "Invalid cross-device link",
	[ENODEV] = "No such device",
	[ENOTDIR] = "Not a directory",
	[EISDIR] = "Is a directory",
	[EINVAL] = "Invalid argument",
	[ENFILE] = "Too many open files in system",
	[EMFILE] = "Too many open files",
	[ENOTTY] = "Inappropriate ioctl for device",
	[ETXTBSY] = "Text file busy",
	[EFBIG] = "File too large",
	[ENOSPC] = "No space left on device",
	[ESPIPE] = "Illegal seek",
	[EROFS] = "Read-only file system",
	[EMLINK] = "Too many links",
	[EPIPE] = "Broken pipe",
	[EDOM] = "Numerical argument out of domain",
	[ERANGE] = "Numerical result out of range",
	[ENAMETOOLONG] = "File name too long",
	[ENOLCK] = "No locks available",
	[ENOSYS] = "Function not implemented",
	[ENOTEMPTY] = "Directory not empty",
	[ELOOP] = "Too many levels of symbolic links",
	[ENODATA] = "No data available",
	[ETIME] = "Timer expired",
	[EPROTO] = "Protocol error",
	[EMULTIHOP] = "Multihop attempted",
	[EBADMSG] = "Bad message",
	[EOVERFLOW] = "Value too large for defined data type",
	[EILSEQ] = "Invalid or incomplete multibyte or wide character",
	[EUSERS] = "Too many users",
	[ENOTSOCK] = "Socket operation on non-socket",
	[EDESTADDRREQ] = "Destination address required",
	[EMSGSIZE] = "Message too long",
	[EPROTOTYPE] = "Protocol wrong type for socket",
	[ENOPROTOOPT] = "Protocol not available",
	[EPROTONOSUPPORT] = "Protocol not supported",
	[ESOCKTNOSUPPORT] = "Socket type not supported",
	[ENOTSUP] = "Operation not supported",
	[EPFNOSUPPORT] = "Protocol family not supported",
	[EAFNOSUPPORT] = "Address family not supported by protocol",
	[EADDRINUSE] = "Address already in use",
	[EADDRNOTAVAIL] = "Cannot assign requested address",
	[ENETDOWN] = "Network is down",
	[ENETUNREACH] = "Network is unreachable",
	[ENETRESET] = "Network dropped connection on reset",
	[ECONNABORTED] = "Software caused connection abort",
	[ECONNRESET] = "Connection reset by peer",
	[ENOBUFS] = "No buffer space available",
	[EISCONN] = "Transport endpoint is already connected",
	[ENOTCONN] = "Transport endpoint is not connected",
	[ESHUTDOWN] = "Cannot send after transport endpoint shutdown",
	[ETOOMANYREFS] = "Too many references: cannot splice",
	[ETIMEDOUT] = "Connection timed out",
	[ECONNREFUSED] = "Connection refused",
	[EHOSTDOWN] = "Host is down",
	[EHOSTUNREACH] = "No route to host",
	[EALREADY] = "Operation already in progress",
	[EINPROGRESS] = "Operation now in progress",
	[ESTALE] = "Stale file handle",
	[EUCLEAN] = "Structure needs cleaning",
	[ENOTNAM] = "Not a XENIX named type file",
	[ENAVAIL] = "No XENIX semaphores available",
	[EISNAM] = "Is a named type file",
	[EREMOTEIO] = "Remote I/O error",
	[EDQUOT] = "Disk quota exceeded",
	[ENOMEDIUM] = "No medium found",
	[EMEDIUMTYPE] = "Wrong medium type",
	[ECANCELED] = "Operation canceled",
};

void text_init(struct text *text, char *buf, size_t size)
{
	*text = (struct text){.buf = buf, .size = size};
	buf[0] = '\0';
}

void text_add_bytes(struct text *text, const char *s, size_t n)
{
	size_t room = text->size - text->len - 1;

	if (n > room) {
		n = room;
		text->cut = true;
	}
	memcpy(text->buf + text->len, s, n);
	text->len += n;
	text->buf[text->len] = '\0';
}

void text_add(struct text *text, const char *s)
{
	text_add_bytes(text, s, strlen(s));
}

void text_add_number(struct text *text, int64_t n)
{
	char digits[20]; /* of 2^63, and the sign */
	size_t at = sizeof(digits);
	/* Negated as unsigned: -INT64_MIN is no int64_t. */
	uint64_t rest = n < 0 ? -(uint64_t)n : (uint64_t)n;

	do {
		digits[--at] = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest);
	if (n < 0)
		digits[--at] = '-';
	text_add_bytes(text, digits + at, sizeof(digits) - at);
}

void text_add_errno(struct text *text, int err)
{
	const size_t known = sizeof(descriptions) / sizeof(descriptions[0]);
	const char *description = err >= 0 && (size_t)err < known ? descriptions[err] : NULL;

	if (description) {
		text_add(text, description);
	} else {
		text_add(text, "error ");
		text_add_number(text, err);
	}
}

/* The length of the UTF-8 sequence at s (n bytes left), and its character; 0: it is none. */
static size_t text_decode(const unsigned char *s, size_t n, uint32_t *out)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t len = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
	uint32_t c;

	if (!len || len > n)
		return 0;
	c = len == 1 ? s[0] : s[0] & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3fu);
	}
	*out = c;
	return c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) ? 0 : len;
}

/* Controls, and characters that are invisible or turn the direction of text. */
static bool text_is_hidden(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
	       (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
	       (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe0fff);
}

void text_make_printable(char *s, size_t n)
{
	uint32_t c;

	for (size_t i = 0, len; i < n; i += len) {
		len = text_decode((const unsigned char *)s + i, n - i, &c);
		if (len && !text_is_hidden(c))
			continue;
		len = len ? len : 1;
		for (size_t at = i; at < i + len; at++)
			s[at] = s[at] == '\0' || s[at] == ' ' || (s[at] >= '\t' && s[at] <= '\r') ? ' ' : '?';
	}
}
