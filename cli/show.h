/* Text for people's terminals. Names of files, hosts and programs are whatever somebody chose: what could move the
 * cursor or hide something is shown as \xNN. */
#ifndef DFLOCK_CLI_SHOW_H
#define DFLOCK_CLI_SHOW_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Writes text with control characters and what is no text in this locale as \xNN, and a backslash as itself. */
void show_text(FILE *f, const char *text);

/* The same as a string (cut off if it is longer) with the columns that it takes. */
size_t show_escape(const char *text, char *out, size_t size);

#define SHOW_TIME_BYTES 64
/* "2024-05-01 12:34:56", local time; "-" for 0. */
const char *show_when(int64_t unix_s, char out[SHOW_TIME_BYTES]);
/* "250 ms", "26 s", "3 min 20 s", "5 h 12 min", "3 d 4 h". */
const char *show_ms(int64_t ms, char out[SHOW_TIME_BYTES]);

/*
 * A table: cells are added row by row, the first row is its head; columns are as wide as their widest cell. Lines
 * of text may stand between rows. NULL from table_new and a table that ran out of memory are handled: the table
 * then says so when it is printed.
 */
struct table;
struct table *table_new(size_t columns);
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_line(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_print(struct table *table, FILE *f);
void table_free(struct table *table);

#endif
