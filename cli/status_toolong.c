#include "cli/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/field.h"
#include "cli/grid.h"
#include "cli/show.h"

void status_toolong_print(const json_t *too_long, FILE *f)
{
	char since[SHOW_TIME_BYTES], held[SHOW_TIME_BYTES];
	size_t count;
	json_t **list = field_sorted(too_long, "name", "pid", &count);
	struct grid *grid = count ? grid_new(1) : NULL;

	if (count)
		fprintf(f, "\nHELD TOO LONG: longer than warn_after_ms or kill_after_ms of their rule\n");
	for (size_t i = 0; i < count; i++) {
		const char *doing = field_text(list[i], "doing");

		grid_note(grid, "%s (%s), for %s, since %s", field_text(list[i], "name"), field_text(list[i], "path"),
			  show_ms(field_number(list[i], "held_ms"), held),
			  show_when(field_number(list[i], "since"), since));
		grid_note(grid, "    by pid %" PRId64 "%s%s: %s", field_number(list[i], "pid"),
			  *doing ? ", which " : "", doing, field_text(list[i], "command"));
	}
	if (count)
		grid_print(grid, f);
	grid_free(grid);
	free(list);
}
