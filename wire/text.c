#include "wire/text.h"

#include <errno.h>
#include <string.h>

/* strerror() translates and may allocate, and strerrordesc_np() is not in every glibc. These are what the calls of the shim give. */
static const char *const descriptions[] = {
	[EPERM] = "Operation not permitted",
	[ENOENT] = "No such file or directory",
	[EINTR] = "Interrupted system call",
	[EIO] = "Input/output error",
	[ENXIO] = "No such device or address",
	[E2BIG] = "Argument list too long",
	[ENOEXEC] = "Exec format error",
	[EBADF] = "Bad file descriptor",
	[EAGAIN] = "Resource temporarily unavailable",
	[ENOMEM] = "Cannot allocate memory",
	[EACCES] = "Permission denied",
	[EFAULT] = "Bad address",
	[EBUSY] = "Device or resource busy",
	[EEXIST] = "File exists",
	[ENODEV] = "No such device",
	[ENOTDIR] = "Not a directory",
	[EISDIR] = "Is a directory",
	[EINVAL] = "Invalid argument",
	[ENFILE] = "Too many open files in system",
	[EMFILE] = "Too many open files",
	[ETXTBSY] = "Text file busy",
	[ENOSPC] = "No space left on device",
	[EROFS] = "Read-only file system",
	[EPIPE] = "Broken pipe",
	[ENAMETOOLONG] = "File name too long",
	[ENOLCK] = "No locks available",
	[ENOSYS] = "Function not implemented",
	[ELOOP] = "Too many levels of symbolic links",
	[EPROTO] = "Protocol error",
	[EOVERFLOW] = "Value too large for defined data type",
	[ENOTSUP] = "Operation not supported",
	[ECONNRESET] = "Connection reset by peer",
	[ENOBUFS] = "No buffer space available",
	[ENOTCONN] = "Transport endpoint is not connected",
	[ETOOMANYREFS] = "Too many references: cannot splice",
	[ETIMEDOUT] = "Connection timed out",
	[ECONNREFUSED] = "Connection refused",
	[EHOSTDOWN] = "Host is down",
	[EHOSTUNREACH] = "No route to host",
	[ESTALE] = "Stale file handle",
	[EREMOTEIO] = "Remote I/O error",
	[EDQUOT] = "Disk quota exceeded",
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

static void text_add_number(struct text *text, int64_t n)
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

static void text_add_errno(struct text *text, int err)
{
	const size_t known = sizeof(descriptions) / sizeof(descriptions[0]);

	if (err >= 0 && (size_t)err < known && descriptions[err])
		text_add(text, "%s", descriptions[err]);
	else
		text_add(text, "error %d", err);
}

static void text_vadd(struct text *text, const char *format, va_list *ap)
{
	const char *s;

	for (; *format; format++) {
		size_t plain = strcspn(format, "%"), longs;

		text_add_bytes(text, format, plain);
		format += plain;
		if (!*format)
			break;
		for (longs = 0; *++format == 'l';)
			longs++;
		if (*format == 's') {
			s = va_arg(*ap, const char *);
			text_add_bytes(text, s, strlen(s));
		} else if (*format == 'm') {
			text_add_errno(text, errno);
		} else if (longs) {
			text_add_number(text, longs > 1 ? va_arg(*ap, long long) : va_arg(*ap, long));
		} else {
			text_add_number(text, *format == 'u' ? (int64_t)va_arg(*ap, unsigned) : va_arg(*ap, int));
		}
	}
}

void text_add(struct text *text, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	text_vadd(text, format, &ap);
	va_end(ap);
}

bool text_vprint(char *buf, size_t size, const char *format, va_list ap)
{
	struct text text;
	va_list copy;

	text_init(&text, buf, size);
	va_copy(copy, ap);
	text_vadd(&text, format, &copy);
	va_end(copy);
	return !text.cut;
}

bool text_print(char *buf, size_t size, const char *format, ...)
{
	va_list ap;
	bool whole;

	va_start(ap, format);
	whole = text_vprint(buf, size, format, ap);
	va_end(ap);
	return whole;
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

bool text_is_hidden(uint32_t c)
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
