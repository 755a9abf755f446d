/* dflock top: what its two files share. top_rows.c makes the rows out of the document, top.c shows them and takes keys. */
#ifndef DFLOCK_CLI_TOP_H
#define DFLOCK_CLI_TOP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOP_TEXT_BYTES 512

enum top_color { TOP_GOOD = 1, TOP_WARN, TOP_BAD, TOP_DIM };
enum top_column { TOP_LOCK, TOP_STATE, TOP_HOST, TOP_WHAT, TOP_SINCE, TOP_BY, TOP_COLUMNS };

struct top_row {
	const char *lock; /* the document's; "": a host */
	char text[TOP_COLUMNS][TOP_TEXT_BYTES];
	int64_t since;  /* Unix time, or of a host the age in ms; 0: not known */
	unsigned place; /* 0: held; else in the queue of those that wait */
	enum top_color color;
};

/* What is shown. */
struct top_view {
	json_t *doc;          /* the keeper's; NULL: it could not be asked */
	struct top_row *rows; /* those that are shown, sorted */
	size_t count, room;
	size_t at;                   /* the row that is chosen */
	char chosen[TOP_TEXT_BYTES]; /* its lock, which stays chosen when rows come and go */
	enum top_column sort;
	bool down, hosts; /* hosts are shown, instead of locks */
	char filter[TOP_TEXT_BYTES];
};
extern struct top_view top;

/* The rows anew, from the document; the lock that was chosen stays chosen. */
void top_fill(void);

#endif
