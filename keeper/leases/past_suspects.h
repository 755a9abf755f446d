/* Locks that were found uncovered: watched, confirmed, reported. See past.h. Loop only. */
#ifndef DFLOCK_KEEPER_PAST_SUSPECTS_H
#define DFLOCK_KEEPER_PAST_SUSPECTS_H

#include <stdbool.h>

#include "keeper/leases/past.h"
#include "procfs/procfs.h"

/* Does this descriptor show such a lock? *mount_id: of the descriptor; may be NULL. For a worker: fdinfo is as long as its
 * process wants. */
bool suspects_are_shown(pid_t pid, int fd, const struct past_key *key, int *mount_id);

/* Watches this lock, or goes on with it: found has the descriptor that shows it, its known, and the command. No memory, or no room: it
 * is left out. */
void suspects_watch(const struct suspect *found, const struct procfs_lock *lock, const char *name, const char *path,
		    const char *linked);
/* Is this the name and the path of the suspect? NULL: neither is. */
bool suspects_is(const struct suspect *s, const char *name, const char *path);

/* The look that is judged has this lock, of those of the suspect, listed, and it is not covered by its number. */
void suspects_see(struct suspect *s, const struct procfs_lock *lock);

/* The judgement is over: forgets the suspects that this look has not seen. */
void suspects_forget(struct keeper *k);
/* Begins to confirm others; then, or at once if there are none, calls done(). */
void suspects_confirm(struct keeper *k, void (*done)(struct keeper *k));

/* The same, and says that it has gone if it was reported. */
void suspects_gone(struct suspect *s);
void suspects_remove(struct suspect *s);

#endif
