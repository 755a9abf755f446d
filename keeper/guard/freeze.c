/*
 * See freeze.h.
 *
 * Why nobody slips through: the search is repeated until it finds nothing that is not stopped yet. A process that forks
 * while it is being stopped is traced with TRACEFORK, so the child begins stopped; one that forked before is found as a
 * descendant. A descriptor that was passed to a process that we have seen and found without it is found in the next
 * search: who passes it must run, and everybody who has it is stopped by then.
 *
 * Who is not meant: whoever gets the kernel lock because the holder ended meanwhile, and has not been told that he may
 * rely on it (fence_caller). He who relies on it had it when the leases ceased to be sure, and is among the first that
 * are found then; or inherited it from one of these, and has asked nothing.
 *
 * Each lock has its on_lost (fence_slot). A process with several: "kill" before "freeze" before "warn". One that is to
 * end is not stopped, since it could not obey SIGTERM, and gets SIGKILL when half of the margin is over, that is before
 * the leases end; one that has a lock under "freeze" is stopped whatever else it has.
 */
#include "keeper/guard/freeze.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/kernel/family.h"
#include "keeper/guard/farewell.h"
#include "keeper/kernel/hidden.h"
#include "keeper/kernel/holders.h"
#include "keeper/kernel/mappers.h"
#include "keeper/guard/lastwords.h"
#include "keeper/log.h"
#include "keeper/guard/stopped.h"
#include "keeper/leases/unseen.h"

#define LOOK_MS  20               /* between two looks while there is something to do */
#define REST_MS  640              /* and at most, while all have been found and stopped */
#define LATE_NS  (10 * NS_PER_MS) /* past the deadline: for PTRACE_SEIZE to come back */
#define AFTER_NS (50 * NS_PER_MS) /* in which one that is found when the deadline has passed must be stopped */
#define MAX_PARENTS 64
#define LOST_NS                                                                                                        \
	(100 * NS_PER_MS) /* in which the holders of lost leases are stopped; then they are killed, stopped or not */

struct freezer {
	struct fence *fence;
	struct stopped stopped;
	int pause_ms;        /* until the next search: grows while nobody new is found */
	bool froze;          /* the event was logged */
	bool blind;          /* ditto: that nobody can be searched for */
	bool terminated;     /* on_lost = kill: SIGTERM was sent ... */
	bool ended;          /* ... and SIGKILL */
	struct family ending; /* to these */
	struct family first; /* those who had locks when the leases ceased to be sure, with all that they had started */
	bool first_known;
	int64_t first_freeze_at; /* of which freeze_at */
	int64_t limited_for;     /* ditto: for which PTRACE_SEIZE got its limit */
	int64_t patient_until;   /* ditto: until then those who are held are waited for */
};

struct freezer *freezer_new(struct fence *fence)
{
	struct freezer *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->fence = fence;
	f->pause_ms = LOOK_MS;
	stopped_adopt(&f->stopped, fence->signalled, FENCE_SIGNALLED);
	return f;
}

void freezer_keeper(struct freezer *f, pid_t keeper)
{
	f->stopped.keeper = keeper;
}

static void publish(struct freezer *f)
{
	__atomic_store_n(&f->fence->frozen_count, stopped_processes(&f->stopped), __ATOMIC_RELEASE);
}

/* A search: the tag of a claim is its slot in the fence. */
struct look {
	struct freezer *freezer;
	struct family *family;
	bool stop; /* at once, each that is found */
	struct claims claims;
	bool *shown; /* of each claim: a lock on all of it was seen, and nobody else can have one */
	size_t shown_count;
	bool *hidden; /* of each claim: a lock on it is held by nobody that can be found */
	struct hidden unseen;
	pid_t known; /* the last that was found */
};

static bool relies_on_nothing(const struct freezer *f, const struct holder *h, const struct holders_file *file)
{
	return f->first_known && !family_has(&f->first, h->pid) &&
	       fence_has_caller(
		       f->fence,
		       &(struct fence_caller){.pid = h->pid, .space = h->space, .dev = file->dev, .ino = file->ino});
}

/* Was it asked to end, or started by one that was, perhaps since? */
static bool is_ending(const struct freezer *f, pid_t pid)
{
	struct procfs_stat stat;

	if (!family_count(&f->ending) || f->ended)
		return false;
	for (int i = 0; i < MAX_PARENTS && pid > 1; i++, pid = stat.parent)
		if (family_has(&f->ending, pid))
			return true;
		else if (!family_stat(pid, &stat))
			return false;
	return false;
}

static void stop_process(struct freezer *f, pid_t pid)
{
	if (!is_ending(f, pid))
		stopped_stop(&f->stopped, pid);
}

static int found(struct look *look, pid_t pid)
{
	size_t before = family_count(look->family);
	int ret = family_add(look->family, pid);

	if (ret == 0 && look->stop && family_count(look->family) > before)
		stop_process(look->freezer, pid);
	look->known = pid;
	return ret;
}

static int on_holder(void *arg, const struct holder *h)
{
	struct look *look = arg;
	size_t next = SIZE_MAX;
	int ret = 0;

	if (!claims_next(&look->claims, h->file, h->space, h->from, h->to, &next))
		return 0;
	if (h->pid != look->known && relies_on_nothing(look->freezer, h, &look->claims.files[h->file]))
		return 0;
	if (h->pid != look->known)
		ret = found(look, h->pid);
	return ret ? ret : HOLDERS_LATER;
}

/* What this lock shows need not be looked for in /proc/locks. */
static void note_shown(struct look *look, size_t file, const struct procfs_lock *lock)
{
	const struct claim *claim;
	size_t next = SIZE_MAX;

	if (lock->mode != WIRE_EXCLUSIVE || !file_index_is_plain(&look->claims.files[file]))
		return;
	while ((claim = claims_next(&look->claims, file, lock->space, lock->from, lock->to, &next))) {
		bool *shown = &look->shown[claims_index(&look->claims, claim)];

		if (*shown || claim->from < lock->from || claim->to > lock->to)
			continue;
		*shown = true;
		look->shown_count++;
	}
}

static int on_seen(void *arg, const struct procfs_lock *lock)
{
	struct look *look = arg;
	size_t file = FILE_NONE;

	while ((file = file_index_find(&look->unseen.index, lock->dev, lock->ino, file)) != FILE_NONE)
		note_shown(look, file, lock);
	return hidden_seen(&look->unseen, lock);
}

/* seen: on_seen, or NULL if only the processes are wanted: then one lock of each is enough. */
static int search(struct look *look, holders_seen_cb *seen)
{
	return holders_search(&(struct holders_search){.files = look->claims.files,
						       .count = look->claims.file_count,
						       .ignore_pid = look->freezer->stopped.keeper,
						       .how = HOLDERS_AT_ONCE,
						       .cb = on_holder,
						       .seen = seen,
						       .arg = look});
}

static bool is_ours(const struct look *look, const struct procfs_lock *lock)
{
	size_t file = FILE_NONE, next;
	bool ours = false;

	if (lock->locker == look->freezer->stopped.keeper)
		return false;
	while (!ours && (file = file_index_find(&look->unseen.index, lock->dev, lock->ino, file)) != FILE_NONE) {
		next = SIZE_MAX;
		ours = claims_next(&look->claims, file, lock->space, lock->from, lock->to, &next) != NULL;
	}
	return ours;
}

struct mapping {
	struct look *look;
	struct holders_file *files;
	size_t *locks; /* of which lock each is the file */
	bool *found;
	size_t count;
};

static int on_mapper(void *arg, size_t file, pid_t pid)
{
	struct mapping *m = arg;

	m->found[file] = true;
	return pid == getpid() || pid == m->look->freezer->stopped.keeper ? 0 : found(m->look, pid);
}

/* A lock that no process was found for: says so on the claims that it is under. */
static void mark_hidden(struct look *look, const struct procfs_lock *lock)
{
	size_t file = FILE_NONE;

	while ((file = file_index_find(&look->unseen.index, lock->dev, lock->ino, file)) != FILE_NONE) {
		const struct claim *claim;
		size_t next = SIZE_MAX;

		while ((claim = claims_next(&look->claims, file, lock->space, lock->from, lock->to, &next)))
			look->hidden[claims_index(&look->claims, claim)] = true;
	}
}

/* Nobody who may be looked into has a descriptor of it. Whoever has the file mapped may keep the lock by that, a record
 * lock says whose it is, and who took a flock and may not be looked into is taken for its holder (unseen.h). */
static int find_mappers(struct look *look, struct mapping *m)
{
	enum unseen_state state;
	size_t passed_over;
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < hidden_count(&look->unseen); i++) {
		const struct procfs_lock *lock = hidden_lock(&look->unseen, i);

		if (!is_ours(look, lock))
			continue;
		state = unseen_state(lock->locker);
		if (state == UNSEEN_BEYOND)
			mark_hidden(look, lock);
		if (lock->owner == WIRE_OWNER_PROCESS || state == UNSEEN_SIGNAL || state == UNSEEN_BEYOND) {
			ret = found(look, lock->locker);
			continue;
		}
		m->locks[m->count] = i;
		m->files[m->count++] = (struct holders_file){.dev = lock->dev, .ino = lock->ino};
	}
	if (ret == 0 && m->count)
		ret = mappers_find(m->files, m->count, on_mapper, m, &passed_over);
	return ret == -EAGAIN ? 0 : ret;
}

static int find_hidden_holders(struct look *look)
{
	struct mapping m = {.look = look};
	int ret;

	m.files = malloc((hidden_count(&look->unseen) + 1) * sizeof(*m.files));
	m.locks = malloc((hidden_count(&look->unseen) + 1) * sizeof(*m.locks));
	m.found = calloc(hidden_count(&look->unseen) + 1, sizeof(*m.found));
	ret = m.files && m.locks && m.found ? find_mappers(look, &m) : -ENOMEM;
	for (size_t i = 0; ret == 0 && i < m.count; i++)
		if (!m.found[i])
			mark_hidden(look, hidden_lock(&look->unseen, m.locks[i]));
	free(m.files);
	free(m.locks);
	free(m.found);
	return ret;
}

static void publish_hidden(struct look *look)
{
	for (size_t i = 0; i < claims_count(&look->claims); i++) {
		struct fence_slot *slot = &look->freezer->fence->slots[claims_at(&look->claims, i)->tag];

		if (look->hidden[i] && !slot->hidden_said)
			log_error("a lock on inode %llu of device %u:%u is held, but there is no process that could be "
				  "stopped: its "
				  "descriptor is on its way through a socket, or whoever has it cannot be seen; "
				  "`dflock status` names "
				  "the lock",
				  (unsigned long long)slot->ino, major(slot->dev), minor(slot->dev));
		slot->hidden_said |= look->hidden[i];
		__atomic_store_n(&slot->hidden, look->hidden[i], __ATOMIC_RELAXED);
	}
}

/* /proc/locks is not asked without need (hidden.h). */
static int search_hidden(struct look *look)
{
	int ret = hidden_begin(&look->unseen, look->claims.files, look->claims.file_count);

	if (ret == 0)
		ret = search(look, on_seen);
	if (ret == 0 && look->shown_count < claims_count(&look->claims)) {
		ret = hidden_end(&look->unseen);
		if (ret == 0 && hidden_count(&look->unseen))
			ret = search(look, on_seen);
		if (ret == 0 && hidden_count(&look->unseen))
			ret = hidden_end(&look->unseen);
		if (ret == 0 && hidden_count(&look->unseen))
			ret = find_hidden_holders(look);
	}
	if (ret == 0)
		publish_hidden(look);
	return ret;
}

/*
 * Which slots are meant: 1u << STATE for some states, and AS(ON_LOST) for some of what their rules say; without one of
 * these all.
 */
#define AS(on_lost) (1u << (8 + (on_lost)))
#define AS_SOME     (AS(ON_LOST_FREEZE) | AS(ON_LOST_KILL) | AS(ON_LOST_WARN))

static bool is_meant(const struct fence_slot *slot, unsigned which)
{
	if (!(which & 1u << __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE)))
		return false;
	return !(which & AS_SOME) || which & AS(__atomic_load_n(&slot->on_lost, __ATOMIC_RELAXED));
}

static int take_slots(struct freezer *f, struct look *look, unsigned which)
{
	uint32_t used = __atomic_load_n(&f->fence->used, __ATOMIC_ACQUIRE);
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < used; i++) {
		const struct fence_slot *slot = &f->fence->slots[i];
		struct holders_file file;

		if (!is_meant(slot, which))
			continue;
		file.kernel_ino = __atomic_load_n(&slot->kernel_ino, __ATOMIC_ACQUIRE);
		file.kernel_dev = slot->kernel_dev;
		file.dev = slot->dev;
		file.ino = slot->ino;
		ret = claims_add(&look->claims, &file, slot->space, slot->from, slot->to, i);
	}
	if (ret == 0)
		ret = claims_build(&look->claims);
	look->shown = calloc(claims_count(&look->claims) + 1, sizeof(*look->shown));
	look->hidden = calloc(claims_count(&look->claims) + 1, sizeof(*look->hidden));
	return ret == 0 && look->shown && look->hidden ? 0 : -ENOMEM;
}

static void look_end(struct look *look, int ret)
{
	struct freezer *f = look->freezer;

	if (ret == 0)
		ret = family_add_descendants(look->family, f->stopped.keeper);
	if (ret < 0 && !f->blind)
		log_error("the processes that hold locks cannot be searched for: %s", strerror(-ret));
	f->blind = ret < 0;
	hidden_free(&look->unseen);
	claims_free(&look->claims);
	free(look->shown);
	free(look->hidden);
}

/* Who holds a lock under a lease whose slot is meant (is_meant()) and has a descriptor of it, and all that they
 * started. stop: each is stopped as soon as it is found, but for what it started. */
static void find_family(struct freezer *f, struct family *family, unsigned states, bool stop)
{
	struct look look = {.freezer = f, .family = family, .stop = stop};
	int ret = take_slots(f, &look, states);

	if (ret == 0 && claims_count(&look.claims))
		ret = search(&look, NULL);
	look_end(&look, ret);
}

/* And those who have no descriptor of it. It takes longer, since every descriptor has to be looked at: for when all the
 * others are stopped. */
static void find_hidden_family(struct freezer *f, struct family *family, unsigned states, bool stop)
{
	struct look look = {.freezer = f, .family = family, .stop = stop};
	int ret = take_slots(f, &look, states);

	if (ret == 0 && claims_count(&look.claims))
		ret = search_hidden(&look);
	look_end(&look, ret);
}

static bool has_slot(const struct freezer *f, unsigned which)
{
	uint32_t used = __atomic_load_n(&f->fence->used, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < used; i++)
		if (is_meant(&f->fence->slots[i], which))
			return true;
	return false;
}

#define SLOTS_SURE_UNTIL (1u << FENCE_HELD | 1u << FENCE_UNSURE) /* those that end at the deadline */
#define SLOTS_DUE (1u << FENCE_UNSURE | 1u << FENCE_LOST | 1u << FENCE_ENDING)

/* Before anything is done to anybody else: due says that the time has come. True: they were found just now. */
static bool find_first(struct freezer *f, bool due, int64_t freeze_at, bool stop)
{
	if (f->first_known && ((due && f->first_freeze_at != freeze_at) || !(due || has_slot(f, SLOTS_DUE)))) {
		family_free(&f->first);
		f->first_known = false;
		for (uint32_t i = 0; i < f->fence->used; i++)
			f->fence->slots[i].hidden = f->fence->slots[i].hidden_said = 0;
	}
	if (f->first_known || !(due || has_slot(f, 1u << FENCE_LOST)))
		return false;
	find_family(f, &f->first, 1u << FENCE_HELD | SLOTS_DUE, stop);
	f->first_known = !f->blind;
	f->first_freeze_at = freeze_at;
	return f->first_known;
}

static void kill_all(const struct family *family, int signal)
{
	for (size_t i = 0; i < family_count(family); i++)
		if (family_at(family, i) != getpid())
			kill(family_at(family, i), signal);
}

/* In how many ms lines may be written while leases run out. */
static int words_ms(const struct freezer *f)
{
	int64_t left = (__atomic_load_n(&f->fence->deadline_ns, __ATOMIC_RELAXED) - clock_now_ns()) / NS_PER_MS / 10;

	return left < 0 || left > LASTWORDS_MS ? LASTWORDS_MS : (int)left;
}

static void say_farewell(struct freezer *f, const struct family *family, unsigned which, enum farewell_end how)
{
	struct look look = {.freezer = f};

	if (family_count(family) && take_slots(f, &look, which) == 0)
		farewell(f->fence, &look.claims, family, how, f->stopped.keeper, words_ms(f));
	claims_free(&look.claims);
	free(look.shown);
	free(look.hidden);
}

static void forget_ended(struct freezer *f)
{
	f->terminated = f->ended = false;
	family_free(&f->ending);
}

/* on_lost = "kill": asked to end when the margin begins, made to when half of it is over. */
static void end_holders(struct freezer *f, int64_t now)
{
	const unsigned which = SLOTS_SURE_UNTIL | AS(ON_LOST_KILL);
	int64_t freeze_at = f->fence->freeze_at_ns, half = freeze_at + (f->fence->deadline_ns - freeze_at) / 2;
	bool ask = now < half;

	if (f->terminated && ask)
		return;
	family_free(&f->ending);
	find_hidden_family(f, &f->ending, which, false);
	if (family_count(&f->ending))
		log_error("the store has not answered: %zu processes that hold locks, or were started by one that "
			  "does, get %s",
			  family_count(&f->ending), ask ? "SIGTERM" : "SIGKILL");
	say_farewell(f, &f->ending, which, ask ? FAREWELL_ASK : FAREWELL_KILL);
	kill_all(&f->ending, ask ? SIGTERM : SIGKILL);
	f->terminated = true;
	f->ended = f->ended || !ask;
}

static void stop_family(struct freezer *f, const struct family *family)
{
	for (size_t i = 0; i < family_count(family); i++)
		stop_process(f, family_at(family, i));
	stopped_collect(&f->stopped);
}

/*
 * One round: stops everybody who is to be stopped because of slots in these states, and gives them. False: somebody
 * came or went, or is not confirmed yet.
 */
static bool freeze_round(struct freezer *f, struct family *family, unsigned states)
{
	f->stopped.changed = false;
	find_family(f, family, states, true);
	stop_family(f, family);
	if (!stopped_all(&f->stopped) || f->stopped.changed)
		return false;
	find_hidden_family(f, family, states, true);
	stop_family(f, family);
	return stopped_all(&f->stopped) && !f->stopped.changed;
}

/*
 * Rounds until all are stopped or the time is over. family: those who are meant. Who is held (stopped.h) may be so for
 * as long as a mount does not answer: that must do when it is past patient_ns.
 */
static bool freeze_until(struct freezer *f, struct family *family, unsigned states, int64_t patient_ns,
			 int64_t until_ns)
{
	const struct timespec pause = {.tv_nsec = NS_PER_MS};

	while (!freeze_round(f, family, states)) {
		int64_t now = clock_now_ns();

		if (now > patient_ns && !f->stopped.changed && stopped_all_held(&f->stopped))
			return true;
		if (now > until_ns)
			return false;
		family_free(family);
		if (f->terminated && !f->ended)
			end_holders(f, now);
		nanosleep(&pause, NULL);
	}
	return true;
}

/* Of each freeze: a tenth of the margin for PTRACE_SEIZE, and another one for those who are held. */
static void set_limit(struct freezer *f, int64_t now)
{
	int64_t freeze_at = __atomic_load_n(&f->fence->freeze_at_ns, __ATOMIC_ACQUIRE);
	int64_t deadline = __atomic_load_n(&f->fence->deadline_ns, __ATOMIC_RELAXED);
	int64_t tenth = now < deadline && deadline - freeze_at > 10 * LATE_NS ? (deadline - freeze_at) / 10 : LATE_NS;

	if (f->limited_for == freeze_at && now < deadline)
		return;
	if (f->limited_for != freeze_at)
		f->patient_until = now + 2 * tenth;
	f->limited_for = freeze_at;
	stopped_limit(&f->stopped, tenth);
}

/* Those who are neither stopped nor held in half of the time that is left are looked at; if they run on for another
 * fourth, they are killed. Who does not end even then is waited for in the next looks: one who hangs in the kernel must
 * not keep us from the others. */
static void freeze(struct freezer *f)
{
	const unsigned states = SLOTS_SURE_UNTIL | AS(ON_LOST_FREEZE);
	int64_t now = clock_now_ns(), left = __atomic_load_n(&f->fence->deadline_ns, __ATOMIC_RELAXED) - now;
	int64_t fourth = left > 0 ? left / 4 : AFTER_NS / 3;
	struct family family = {0};

	if (!freeze_until(f, &family, states, f->patient_until, now + 2 * fourth)) {
		stopped_warn(&f->stopped);
		family_free(&family);
		if (!freeze_until(f, &family, states, f->patient_until, now + 3 * fourth))
			stopped_kill_rest(&f->stopped);
	}
	family_free(&family);
	publish(f);
	if (f->fence->frozen_count && !f->froze) {
		log_error("the store has not answered: %u processes that hold locks, or were started by one that does, "
			  "are frozen "
			  "until it does",
			  f->fence->frozen_count);
		f->froze = true;
	}
}

static void thaw(struct freezer *f)
{
	unsigned count = stopped_let_go(&f->stopped);

	publish(f);
	if (count && f->froze)
		log_error("the leases stand: %u frozen processes go on", count);
	f->froze = false;
	forget_ended(f);
}

static void set_slots(struct freezer *f, unsigned which, enum fence_state to)
{
	uint32_t used = __atomic_load_n(&f->fence->used, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < used; i++)
		if (is_meant(&f->fence->slots[i], which))
			fence_set(f->fence, i, to);
}

/*
 * The leases are gone: whoever holds locks under them is not protected any more, and must not go on. First all are
 * stopped: one that was killed alone would pass the lock on to somebody here who waits in the kernel, has not
 * been told that he has it, and would be taken for a holder. Who is killed runs no more, however long he takes to end.
 */
static void kill_lost(struct freezer *f)
{
	struct family family = {0};
	bool stopped;

	family_free(&f->ending);
	set_slots(f, 1u << FENCE_LOST, FENCE_ENDING);
	stopped_limit(&f->stopped, LATE_NS);
	stopped = freeze_until(f, &family, 1u << FENCE_ENDING, clock_now_ns(), clock_now_ns() + LOST_NS);
	for (size_t i = 0; i < family_count(&family); i++)
		log_error("pid %d held a lock whose lease was lost, or was started by one that did: it is killed",
			  (int)family_at(&family, i));
	if (stopped) /* else no time is to be lost */
		say_farewell(f, &family, 1u << FENCE_ENDING, FAREWELL_LOST);
	kill_all(&family, SIGKILL);
	set_slots(f, 1u << FENCE_ENDING, FENCE_FREE);
	family_free(&family);
	stopped_collect(&f->stopped);
	publish(f);
}

/* An outage may last for hours, and a search looks at every process of the machine. Who gets a kernel lock past the
 * deadline was granted nothing: one who would be found only then does no harm until the next search. */
static bool is_over(const struct freezer *f)
{
	return clock_now_ns() >= __atomic_load_n(&f->fence->deadline_ns, __ATOMIC_RELAXED);
}

static int pause_ms(struct freezer *f, bool quiet)
{
	f->pause_ms = !quiet ? LOOK_MS : f->pause_ms * 2 > REST_MS ? REST_MS : f->pause_ms * 2;
	return f->pause_ms;
}

int freezer_look(struct freezer *f, int max_ms)
{
	struct fence *fence = f->fence;
	int64_t now = clock_now_ns(), left_ms;
	int64_t freeze_at = __atomic_load_n(&fence->freeze_at_ns, __ATOMIC_ACQUIRE);
	bool leases = has_slot(f, SLOTS_SURE_UNTIL);
	bool due = freeze_at && now >= freeze_at && leases;
	/* Who is to end must not be stopped, and of those who are found first it is not known yet. */
	bool stop = due && !has_slot(f, SLOTS_SURE_UNTIL | AS(ON_LOST_KILL) | AS(ON_LOST_WARN));

	if (due)
		set_limit(f, now);
	/* Those need not be searched for again. */
	if (find_first(f, due, freeze_at, stop) && stop)
		for (size_t i = 0; i < family_count(&f->first); i++)
			stopped_stop(&f->stopped, family_at(&f->first, i));
	set_slots(f, 1u << FENCE_LOST | AS(ON_LOST_WARN), FENCE_FREE);
	if (has_slot(f, 1u << FENCE_LOST))
		kill_lost(f);
	if (due) {
		size_t before = f->stopped.count;
		int ms;

		if (has_slot(f, SLOTS_SURE_UNTIL | AS(ON_LOST_KILL)))
			end_holders(f, now);
		if (has_slot(f, SLOTS_SURE_UNTIL | AS(ON_LOST_FREEZE)))
			freeze(f);
		ms = pause_ms(f, f->stopped.count == before && is_over(f));
		return ms < max_ms ? ms : max_ms;
	}
	if (f->stopped.count && !has_slot(f, 1u << FENCE_UNSURE) && (now < freeze_at || !leases))
		thaw(f);
	/* What is left is held, and waits for its file system: SIGCHLD tells when it has stopped. */
	if (f->stopped.count || signalled_continue_kin(&f->stopped.signalled)) {
		int ms = pause_ms(f, f->stopped.count && !stopped_processes(&f->stopped));

		return ms < max_ms ? ms : max_ms;
	}
	f->pause_ms = LOOK_MS;
	forget_ended(f);
	left_ms = leases && freeze_at ? (freeze_at - now) / NS_PER_MS + 1 : max_ms;
	return left_ms < max_ms ? (int)left_ms : max_ms;
}
