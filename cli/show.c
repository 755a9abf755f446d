#include "cli/show.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>
#include <wctype.h>

/* Format characters that turn the direction of text or are invisible: a name must look like what it is. */
static bool is_hidden(wchar_t c)
{
	return c == 0xad || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
	       (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) ||
	       (c >= 0xe0000 && c <= 0xe0fff);
}

/* The number of bytes of the next character of text; *columns: how wide it is, -1 if it must be escaped. */
static size_t next_char(const char *text, mbstate_t *state, int *columns)
{
	wchar_t c;
	size_t n = mbrtowc(&c, text, MB_CUR_MAX, state);

	if (n == (size_t)-1 || n == (size_t)-2 || n == 0) {
		memset(state, 0, sizeof(*state));
		*columns = -1;
		return 1;
	}
	*columns = iswprint((wint_t)c) && !is_hidden(c) ? wcwidth(c) : -1;
	return n;
}

size_t show_escape(const char *text, char *out, size_t size)
{
	mbstate_t state = {0};
	size_t used = 0, width = 0;

	while (*text) {
		int columns;
		size_t n = next_char(text, &state, &columns);
		size_t need = columns < 0 ? 4 * n : n;

		if (used + need + 1 > size)
			break;
		if (columns < 0) {
			for (size_t i = 0; i < n; i++)
				snprintf(out + used + 4 * i, 5, "\\x%02x", (unsigned char)text[i]);
			columns = (int)need;
		} else {
			memcpy(out + used, text, n);
		}
		used += need;
		width += (size_t)columns;
		text += n;
	}
	out[used] = '\0';
	return width;
}

void show_text(FILE *f, const char *text)
{
	mbstate_t state = {0};

	while (*text) {
		int columns;
		size_t n = next_char(text, &state, &columns);

		for (size_t i = 0; i < n; i++)
			fprintf(f, columns < 0 ? "\\x%02x" : "%c", (unsigned char)text[i]);
		text += n;
	}
}

const char *show_when(int64_t unix_s, char out[SHOW_TIME_BYTES])
{
	time_t t = (time_t)unix_s;
	struct tm tm;

	if (!unix_s || !localtime_r(&t, &tm) || !strftime(out, SHOW_TIME_BYTES, "%Y-%m-%d %H:%M:%S", &tm))
		strcpy(out, "-");
	return out;
}

const char *show_ms(int64_t ms, char out[SHOW_TIME_BYTES])
{
	int64_t s = ms / 1000;

	if (ms < 0)
		snprintf(out, SHOW_TIME_BYTES, "0 s");
	else if (ms < 1000)
		snprintf(out, SHOW_TIME_BYTES, "%" PRId64 " ms", ms);
	else if (s < 60)
		snprintf(out, SHOW_TIME_BYTES, "%" PRId64 " s", s);
	else if (s < 3600)
		snprintf(out, SHOW_TIME_BYTES, "%" PRId64 " min %" PRId64 " s", s / 60, s % 60);
	else if (s < 86400)
		snprintf(out, SHOW_TIME_BYTES, "%" PRId64 " h %" PRId64 " min", s / 3600, s / 60 % 60);
	else
		snprintf(out, SHOW_TIME_BYTES, "%" PRId64 " d %" PRId64 " h", s / 86400, s / 3600 % 24);
	return out;
}
