/*
 * What a keeper inherits from the program that started it, and must undo: it serves other programs, and goes on when
 * that program has ended.
 *
 *   taken back    nice and scheduling class, CPUs and memory nodes, I/O priority, timer slack, a positive
 *                 oom_score_adj, blocked and ignored signals, limits of resources (the soft ones; the hard ones of
 *                 CPU time, file size and memory, too, where it may)
 *   kept          capabilities (without the program's own the kernel would not let it stop that program), no_new_privs,
 *                 securebits and keyrings (the keeper does not use them), a negative oom_score_adj
 *   cannot be     the cgroup, with its limits and with the end of its service; namespaces; seccomp (shim/start.c
 *   taken back    starts no keeper under it)
 *
 * A keeper that an operator or a service manager starts keeps all that it inherited: they have set it on purpose.
 */
#ifndef DFLOCK_KEEPER_INHERIT_H
#define DFLOCK_KEEPER_INHERIT_H

/* First thing in main(), before there are threads. Changes errno. */
void inherit_take_back(void);

/* Makes oom_score_adj 0 if it is above (sign 1) or below (-1) that, and if this process may. Any process. */
void inherit_reset_oom(int sign);

/* Logs what could not be taken back and may cost leases. After log_init(). */
void inherit_tell(void);

#endif
