/*
 * Lines to the person who runs the program: "dflock: ..." on descriptor 2, each with a single write, no stdio.
 *
 * Nothing is written unless descriptor 2 is still the file that it was when the program started: a program may have
 * closed it and have a data file or a connection under that number now. Nothing is written either if that file is the
 * locked file itself, or if the write would have to wait (a full pipe). Nothing here raises a signal in the program.
 * Callable in signal handlers and from every thread; errno may change.
 */
#ifndef DFLOCK_SHIM_NOTE_H
#define DFLOCK_SHIM_NOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The lock call on `fd` is refused: "dflock: PATH: lock refused: WHAT", which says what failed and what to do (format as for
 * text_add()). The same line comes at most once in NOTE_REPEAT_S, and at most NOTE_BURST lines come in NOTE_BURST_S; this holds
 * for note_line(), too. */
#define NOTE_REPEAT_S 10
#define NOTE_BURST_S  60
#define NOTE_BURST    10
/* As `fd`: the line is about the start of the program and no lock: "dflock: not started: WHAT". */
#define NOTE_JOB (-1)
void note_refused(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The lock call on `fd` waits because of on_refused = "wait": "dflock: PATH: waiting: WHAT". */
void note_waiting(int fd, const char *what);

/* A line in the keeper's words: "dflock: LINE". */
void note_line(int fd, const char *line);

/* "dflock: debug: pid PID: PATH: WHAT", only with DFLOCK_LOG=debug; each line is written, however often it comes. */
void note_debug(int fd, const char *what);

/* --- where the lines go. note_out.c is linked into libdflock.so; dflock-net, which writes for the threads of other programs, has these
 * functions in net/note_out.c. Callable wherever note_line() is; errno may change --- */

/* Where a line is written that is about the lock call on `fd` (or NOTE_JOB): a descriptor, for the next two functions. -1: it may not be
 * written, see above when. */
int note_out_open(int fd);

/* Writes it with one call, or not at all if that would wait. */
void note_out_write(int out, const char *line, size_t len);
void note_out_close(int out);

/* The process that the lines are about. */
pid_t note_out_pid(void);

#endif
