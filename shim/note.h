/*
 * Lines to the person who runs the program: "dflock: ..." on descriptor 2, each with a single write, no stdio.
 *
 * Descriptor 2 is only written while it is the file that it was when the program started: a program that
 * closed it and got a data file or a connection under that number keeps its data. It is not written either if
 * it is the locked file itself, or if the write would have to wait (a full pipe). Nothing here raises a signal
 * in the program. Callable in signal handlers and from every thread; errno may change.
 */
#ifndef DFLOCK_SHIM_NOTE_H
#define DFLOCK_SHIM_NOTE_H

/* The lock call on fd is refused: "dflock: PATH: lock refused: WHAT[: DETAIL]". WHAT says what failed,
 * and what to do. The same line comes once in NOTE_REPEAT_S, and NOTE_BURST lines in NOTE_BURST_S. */
#define NOTE_REPEAT_S 10
#define NOTE_BURST_S  60
#define NOTE_BURST    10
void note_refused(int fd, const char *what, const char *detail);

/* The same with errno's text as the detail; err is positive. */
void note_refused_errno(int fd, const char *what, int err);

/* A line as the keeper worded it: "dflock: LINE". */
void note_line(int fd, const char *line);

/* Only with DFLOCK_LOG=debug, and as often as it is called: "dflock: debug: PATH: WHAT". */
void note_debug(int fd, const char *what);

#endif
