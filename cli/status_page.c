/* dflock status --html: the state as a page for a browser, which needs nothing else. The page's script makes the tables. */
#include "cli/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The assembler reads the page: a file of its own, so that it can be opened and checked as what it is. */
__asm__(".pushsection .rodata\n"
	"status_page_text:\n"
	".incbin \"cli/status.html\"\n"
	".byte 0\n"
	".popsection\n");
extern const char status_page_text[];

/* Inside of a script element only "<" can end the element, and in JSON it stands in texts alone. */
static void status_page_state(const char *json, FILE *f)
{
	for (; *json; json++)
		if (*json == '<')
			fputs("\\u003c", f);
		else
			fputc(*json, f);
}

bool status_page(const json_t *status, FILE *f)
{
	char *json = json_dumps(status, JSON_COMPACT | JSON_ENSURE_ASCII);
	const char *at = status_page_text, *mark;

	if (!json)
		return false;
	while ((mark = strchr(at, '@'))) {
		fwrite(at, 1, (size_t)(mark - at), f);
		if (!strncmp(mark, "@STATE@", 7))
			status_page_state(json, f);
		else if (!strncmp(mark, "@MADE@", 6))
			fprintf(f, "%" PRId64, (int64_t)time(NULL));
		else
			fputc('@', f);
		at = mark + (!strncmp(mark, "@STATE@", 7) ? 7 : !strncmp(mark, "@MADE@", 6) ? 6 : 1);
	}
	fputs(at, f);
	free(json);
	return true;
}
