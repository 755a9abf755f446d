/*
 * The second supervisor: waits until the first one has died, takes its place, and starts another second one. Only if both die
 * at the same time do the job's lock calls fail, with ENOSYS.
 */
#ifndef DFLOCK_NET_STANDBY_H
#define DFLOCK_NET_STANDBY_H

/* What main() finds in argv[1] of a second supervisor. */
#define STANDBY_WORD "--standby"

/*
 * The life of a first supervisor, whose descriptors SUPERVISOR_LISTENER and SUPERVISOR_SHARED are there and whose shared memory is
 * mapped: starts the second one, and another one whenever that ends, and receives calls. program: argv[0]. If `ready` is not negative: one
 * byte is written there, and it is closed, once both serve.
 */
_Noreturn void standby_lead(char *program, int ready);

/* The life of a second supervisor, after exec. */
_Noreturn void standby_wait(char *program);

#endif
