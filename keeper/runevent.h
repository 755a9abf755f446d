/*
 * `dflockd --run-event LIMIT_MS COMMAND...`: a process between the keeper and the command of on_event (kernel/hook.h), so
 * that nothing that the command does can reach the keeper.
 *
 * The command gets the event on its standard input, and no other descriptor but its own two outputs; a session of its
 * own, the directory /, default signals, no more than the usual number of descriptors, nice 0, no protection from the kernel when memory
 * is short; and an environment that has what this process was given, PATH, HOME, USER, LOGNAME and SHELL. So it has no
 * LD_PRELOAD. What it starts belongs to it, also processes that leave its session: when the limit is over, all of them
 * are killed. The turn is over when none is left.
 */
#ifndef DFLOCK_KEEPER_RUNEVENT_H
#define DFLOCK_KEEPER_RUNEVENT_H

/* argv: the limit and the command. Says on descriptor 1, in one line, what went wrong, if anything did; returns the exit
 * status. It becomes the reaper of its descendants, so it needs a process of its own. */
int runevent_main(int argc, char **argv);

#endif
