/* Text for terminals. Any user can choose names of files, hosts and programs: what could move the cursor or hide
 * something is shown as \xNN. */
#ifndef DFLOCK_CLI_SHOW_H
#define DFLOCK_CLI_SHOW_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Writes text. Control characters, and bytes that are no text in this locale, become \xNN; a backslash stays as it
 * is. */
void show_text(FILE *f, const char *text);

/* The same into `out` (cut off if it is longer). Returns how many columns of a terminal it takes. */
size_t show_escape(const char *text, char *out, size_t size);

#define SHOW_TIME_BYTES 64
/* "2024-05-01 12:34:56", local time; "-" for 0. */
const char *show_when(int64_t unix_s, char out[SHOW_TIME_BYTES]);
/* "250 ms", "26 s", "3 min 20 s", "5 h 12 min", "3 d 4 h". */
const char *show_ms(int64_t ms, char out[SHOW_TIME_BYTES]);

#endif
