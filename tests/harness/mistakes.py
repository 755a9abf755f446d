"""
Mistakes that tests must find, by the test that must: each is a list of changes at markers in the sources (mutants.py).
harness/test_mutants.py says whether all of them fit the sources, and
whether every marker is used.
"""
from .mutants import after, become, before, condition, put, skip


def step(state, event, next_state, actions):
    """The lease table has another entry."""
    return after("lease-step", f"if (state == LEASE_{state} && event == LEASE_CUE_{event}) "
                               f"return (struct lease_step){{.next = LEASE_{next_state}, .actions = {actions}}};")


# Found by the simulator: `make sim-mutants`.
SIMULATOR = {
    "deadline counted from the answer": [put("deadline", "sent_ns", "clock_now_ns()")],
    "deadline twice as long": [put("deadline", "9 / 10", "2")],
    "silent for half a ttl counts as dead": [put("dead-after", "watch->ttl_ns", "watch->ttl_ns / 2")],
    "a host that is named dead is dead": [put("named-dead", "beat_of(ARGV[i]) == ARGV[i + 1]", "true")],
    "a lost memory begins without grace": [put("new-memory", "'0'", "'1'")],
    "grace is over at once": [become("grace-left", "return 0;")],
    "FLUSHALL is not another incarnation": [put("new-memory", "t[1] .. '-' .. t[2]", "''")],
    "a lease that goes back stays in the table": [
        after("lease-step", "if (cell->set && cell->next == LEASE_RELEASING) "
                            "return (struct lease_step){.next = cell->next, .actions = cell->actions & ~LEASE_DO_RETURN};")],
    "a grant is not written into the table": [become("fence-recorded", "(void)file;")],
    "shrunk, but exclusive in the table": [become("table-shared", "(void)word;")],
    "what goes back is forgotten": [put("table-asked", " || state == TABLE_RETURNED", "")],
    "pins are not waited for": [condition("is-pinned", "false"), condition("pinned", "false")],
    "a call under way is no pin": [put("pinned-call", " || seenout_is_wanted(lock, range, false)", "")],
    "calls under way are forgotten by the next keeper": [become("file-boot", "return false;")],
    "a process that may take the lock at any moment goes on": [skip("freeze-calls"), skip("first-calls")],
    "a process that is still in the kernel is spared": [condition("bereft-held", "false")],
    "pins of a dead keeper are forgotten": [become("old-pins", "k->old_pins.until_ns = 0;")],
    "what the kernel says is not waited for": [step("PROBING", "IN_USE", "RELEASING", "RELEASE")],
    "callers are granted while the kernel is asked": [condition("serve-draining", "lease->state != LEASE_RELEASING"),
                                                      condition("serve-probed", "false")],
    "a lease is closed after the kernel was asked": [step("OPEN", "LINGERED", "OPEN", "LEASE_DO_PROBE")],
    "the page is not closed when a lease is": [condition("page-closed", "false")],
    "the page says for a second that leases are sure": [put("page-sure-until", "until_ns < sure_ns", "false")],
    "what the page said before the kernel lock was taken is enough": [condition("page-again", "false")],
    "granted by hand-over after the deadline": [condition("granted-late", "false")],
    "the deadline passes unseen": [condition("deadline-passed", "true")],
    "nobody is frozen": [condition("freeze", "false")],
    "holders go on before the leases are confirmed": [put("thaw", " | slots_stores(f->table, SLOTS_DUE)", "")],
    "holders of lost leases go on": [condition("lost", "true")],
    "leases of one shard are sure for as long as those of another": [condition("slots-store", "false")],
    "put back after the deadline": [step("UNSURE", "FORGOTTEN", "FORGOTTEN", "LEASE_DO_CONFIRM"), step("FORGOTTEN", "EXPIRED", "FORGOTTEN", "0")],
    "a fence is not compared": [put("confirm", " and number(lease.fence) == ARGV[4]", "")],
    "what an old snapshot says of a lease is put back": [condition("reclaim-shared", "false")],
    "a lost memory under standing connections never opens": [skip("grace-timer")],
    "the first lease after a pause is no beat": [become("beat-after-pause", "return recent;")],
    "a forgotten waiter keeps others waiting": [condition("forgotten-waiter", "false"), condition("forgotten-ahead", "false")],
    "an older fence is put back over a younger one": [put("reclaim-older", ">", "<")],
    "shared and exclusive get along": [put("clash", "'exclusive' or b.mode", "'exclusive' and b.mode")],
    "a later waiter may be first": [put("hand-over", " and (w.pass or not ahead.first(w))", "")],
    "an unknown token is not given back": [skip("unknown-token")],
    "a waiter asks only once": [skip("ask-again")],
    "what was to be shrunk is exclusive again": [become("unshrunk", "lease->range.mode = reply->mode;")],
    "a caller that was to have its pin is a newcomer": [condition("newcomer", "lease->recalled.level < RECALL_WAIT || s->holds.exclusive || own_count(&s->before)")],
    "no lock rests": [become("rest-left", "return 0")],
    "a rest ends with its lock": [put("rest-unused", "ARGV[3] == '1' and ", "")],
    "two callers have a lock by one grant": [become("once", "return true;")],
    "the probe sends, and the table does not say so": [skip("early-returned")],
    "the store's answer to what the probe sent is not expected": [condition("early-answer", "false")],
    "the probe sends what is not to go back any more": [
        put("early-disarmed", "stays ? EARLY_NOT : early_disarm(lease)", "event == LEASE_CUE_FREE ? early_disarm(lease) : EARLY_NOT")],
    "what was under way is not sent again": [step("RELEASING", "UP", "RELEASING", "0")],
    "a broken lease is released before its holders have ended": [condition("break-order", "lease->state == LEASE_ENDING")],
    "a break does not wait for pins": [put("break-pins", "!waiters_are_pinned(lease->lock, &lease->range)", "true")],
}

# These need so many things at once, or are corrected elsewhere so often, that the simulator needs hours to find them.
RARE = {"the page says for a second that leases are sure", "a fence is not compared",
        "granted by hand-over after the deadline", "deadline counted from the answer"}

# A keeper that ..., found by random sequences of calls: model/test_model.py.
MODEL = {
    "grants everything": [become("serve-new", "session_enter(s, SESSION_PINNED); session_grant(s, clock_now_ns() + NS_PER_MS * 1000, 1);")],
    "gives back what is in use": [condition("record-free", "true")],
    "thinks that shared and exclusive get along": SIMULATOR["shared and exclusive get along"],
    "knows no deadlock": [condition("chase", "true")],
    "does not see that only a part is wanted": [condition("split", "true")],
    "gives EDEADLK to any call of a cycle": [put("chase-youngest", "w->arrival != chase->youngest", "false"),
                                                put("chase-younger", "s->waiter.arrival <= youngest", "true")],
    "does not show locks of other hosts": [
        before("would-block", "if (s->request.op == WIRE_TEST) { session_reply(s, WIRE_GRANTED, NULL, -1); return; }")],
    "lets nobody pass waiters": [become("pass", ".pass = false && (passes || unfair),")],
    "waits for more than a downgrade": [put("shared-will-do", "lease->recalled.shared", "lease->recalled.shared && !lease->recalled.exclusive")],
}

# Found in what a crowd of programs wrote down, with the line that fits: cluster/test_history.py.
HISTORY = {
    "a recalled lease is given back without asking the kernel": ("overlap", [step("DRAINING", "DRAINED", "RELEASING", "RELEASE")]),
    "no pins": ("overlap", [condition("pinned", "false")]),
    "a restarted keeper gives back what is in the table": ("overlap after kill", [put("taken-up", "entry->unsure", "false")]),
    "nothing clashes in the store": ("overlap", [put("clash", "return ", "return false and ")]),
    "the last comes first": ("overtaken", [become("hand-over-order", "for i = #lock.q, 1, -1 do local w = lock.q[i]")]),
}

# Found by locking at full speed: cluster/test_page_stress.py. The ones that "kill" show when keepers are killed.
PAGE = {
    "the page is closed after the kernel was asked": [
        condition("page-closed", "next == LEASE_ENDED || next == LEASE_SHRINKING || next == LEASE_UNSURE")],
    "the page is read before the kernel lock is taken": [
        before("page-lock", "bool stands = leases_stand(&look->page->leases, slot, &look->file, &wanted); usleep(20);"),
        condition("page-again", "!stands")],
    "the next keeper goes on with an old page: kill": [skip("page-reset")],
}

# Alarms that are false: cluster/test_past.py.
PAST = {
    "leases cover nothing": [condition("past-lease", "false")],
    "other keepers' leases cover nothing": [become("past-store", "item->bare = true;")],
    "what was there before is new": [put("past-before", "!p->began", "false")],
}

# Found by the test that is named: harness/test_program_mistakes.py.
PROGRAMS = {
    "cluster/test_shards.py::test_a_new_memory_is_used_only_if_the_first_shard_agrees": {
        "a shard that is new is used before the first one was asked": [condition("shard-asked", "false")]},
    "cluster/test_shards.py::test_a_first_shard_that_was_lost_is_not_a_wrong_host_s": {
        "a first shard is opened before the others were heard": [put("shard-read", "s->agreed && s->read_ns >= m->grace.since_ns", "true")]},
    "cluster/test_shards.py::test_a_first_shard_waits_for_leases_of_shards_that_were_lost_after_it": {
        "a first shard is opened before the others were watched": [put("shard-watched", "left_ms(s) == 0", "left_ms(s) >= 0")]},
    "cluster/test_shards.py::test_the_number_is_changed_while_jobs_run": {
        "a refused init has changed other shards": [put("init-rounds", "{STORE_OPEN_MAY,", "{STORE_OPEN_TAKE,")],
        "shards are left out": [put("shard-fewer", " or (open == '1' and part(record[3], '/(%d+)') > part(ttl_ms, '/(%d+)'))", "")]},
    "faults/test_grace.py::test_init_of_a_new_store_waits_for_a_beat": {
        "a new store is opened before hosts with leases have sent a beat": [become("grace-beat", "return 0;")]},
    "faults/test_room.py::test_ranges_that_are_all_in_use": {
        "callers without room ask the store again and again": [put("limit-often", " + waited_ms / 2", "")]},
    "faults/test_many_descriptors.py::test_many_that_wait_ask_seldom": {
        "each request that waits asks as often as a single one": [become("reask-many", "return ms;")]},
    "faults/test_many_descriptors.py::test_a_crowd_does_not_flood_the_store": {
        "at each answer all callers search for a deadlock": [condition("chase-all", "false")]},
    "cluster/test_netted.py::test_supervisors_are_no_holders": {
        "a copy of a lock is a lock": [put("holders-net", " || holders_is_net(look)", "")]},
    "cluster/test_calls_under_way.py::test_the_lease_stays_until_it_was_seen_out": {
        "a call under way is no pin": [put("pinned-call", " || seenout_is_wanted(lock, range, false)", "")]},
    "cluster/test_calls_under_way.py::test_a_thread_that_is_never_seen_out_leaves_room": {
        "calls of the past are looked after for ever": [condition("seenout-forget", "false"), skip("seenout-drop")]},
    "cluster/test_calls_under_way.py::test_a_thread_that_has_left_the_call": {
        "a call that was seen out stays": [skip("seenout-end")]},
    "cluster/test_calls_under_way.py::test_status_and_who_name_it": {
        "who keeps a lease is not said": [condition("keeping", "true")],
        "other hosts are not told who keeps a lease": [condition("finding-calls", "false")]},
    "cluster/test_lifecycle.py::test_stop_waits_for_callers_of_a_keeper_that_died": {
        "a stop does not wait for pins": [become("stop-pinned", "return false;")]},
    "cluster/test_netted.py::test_one_of_the_cycle_waits_in_a_kernel": {
        "no deadlock is found in which a call waits in a kernel": [condition("chase-net", "false")]},
    "cluster/test_netted.py::test_a_cycle_of_one_host": {
        "a thread is called back again and again": [put("calledback-pause", "now_ns / cb->all[at].pause_ns == cb->all[at].at_ns / cb->all[at].pause_ns", "false"),
                                                    put("called-back-waits", "s->called_back && ", "false && ")]},
    "cluster/test_netted.py::test_verbose_tells_which_local_process_is_in_the_way": {
        "nothing is said of a lock that the kernel will wait for": [put("net-verbose", "!want_is_taken(d->want, d->of)", "true")]},
    "cluster/test_netted.py::test_verbose_says_nothing_of_the_callers_own_locks": {
        "a process's own lock is in its way": [put("want-own", "lock->locker == taken->process", "false")],
        "a description's own lock is in its way": [skip("want-description")]},
    "cluster/test_netted.py::test_getlk_into_memory_that_may_only_be_read": {
        "memory that may only be read is written": [condition("thread-may-write", "map->from > r->at")]},
    "cli/test_report.py::test_what_the_net_catches": {
        "caught calls that failed count as granted": [put("count-caught", "ret == 0 ? TALLY_CAUGHT : TALLY_CAUGHT_FAILED", "TALLY_CAUGHT")]},
    "faults/test_room.py::test_a_user_has_a_share_below_roots_net": {
        "root's net asks with root's rights": [condition("behalf-ids", "true")]},
    "cluster/test_calls_under_way.py::test_it_is_stopped_in_an_outage": {
        "a process that may take the lock at any moment goes on": [skip("freeze-calls"), skip("first-calls")]},
    "cluster/test_freeze_hanging.py::test_a_crowd_delays_nobody": {
        "frozen processes wait for the end of the search": [condition("look-over", "false")]},
    "cluster/test_freeze_hanging.py::test_status_and_who_beside_a_crowd": {
        "a question waits for the end of the search": [put("survey-over", "-ETIME", "0")]},
    "cluster/test_freeze_hanging.py::test_a_crowd_delays_no_stop_after_the_deadline": {
        "what the holders have started runs until the end of the search": [put("look-kin", "look_add_kin(look)", "0")]},
    "cluster/test_break.py::test_another_host_must_allow_it": {
        "other hosts may take locks away without being allowed": [condition("allow-break", "true")]},
    "cluster/test_break.py::test_a_younger_lease_of_the_same_host_is_not_hit": {
        "dflock break ends younger holders": [condition("break-younger", "false")]},
    "cluster/test_redis_key.py::test_on_lost_warn": {
        "a lease with a lost key does not go back": [condition("break-order", "false")]},
    "cluster/test_redis_key.py::test_a_caller_that_was_granted_just_before": {
        "a lost key does not wait for pins": [put("key-pins", "!waiters_are_pinned(lease->lock, &lease->range)", "true")]},
    "cluster/test_redis_key.py::test_a_lease_that_nobody_knows": {
        "a token that nobody knows keeps its key": [skip("key-unknown")]},
    "cluster/test_redis_key.py::test_the_rule_comes_while": {
        "a lease without a key will do": [become("keyed-old", "return true;")]},
    "cluster/test_redis_key.py::test_who_waits_for_redisson": {
        "nobody listens for a client": [condition("key-watch", "false")]},
    "cluster/test_break_host.py::test_one_that_is_heard_of_while_it_is_watched": {
        "a host is given up at once": [condition("give-up-watched", "true")]},
    "cluster/test_too_long.py::test_a_lock_that_is_taken_again_is_young": {
        "only the first grant counts": [
            become("age-anew", "if (!age->at_ns) age->at_ns = ages_now_ns(lock->file->keeper) + pin_ns;")]},
    "faults/test_hostile_users.py::test_a_lock_that_another_users_process_gets_just_before_the_end": {
        "dflock break ends other users' processes": [become("table-spares", "return false;")]},
    "faults/test_hostile_users.py::test_a_file_that_may_only_be_read": {
        "bytes are locked on any descriptor": [become("may-lock", "return true;")]},
    "cluster/test_too_long.py::test_one_that_goes_on_in_the_last_moment": {
        "what was decided before the last look counts": [become("toolong-young", "(void)order_move(o, word, ORDER_ASKED);")],
        "an order is not taken back": [skip("toolong-withdraw")],
        "a lock that has ended meanwhile is held too long": [become("toolong-shown", "certain = true;")]},
    "cluster/test_break_host.py::test_forced_it_stops_its_holders_until_it_knows": {
        "a host that was given up is sure of its leases": [
            skip("given-up"), put("given-up-late", "m->deadline.given_up && ", "false && ")]},
    "cli/test_who.py::test_names_may_stay_here": {
        "a host tells its jobs whatever show_jobs says": [put("who-hidden", "k->config->show_jobs", "true")]},
    "cli/test_who.py::test_a_host_of_an_older_version": {
        "an older host has not answered": [put("who-old", 'e->old ? "old" : "silent"', '"silent"')]},
}

# Found by a unit test: harness/test_unit_mistakes.py. One in the rules must be found both in Redis and in store/replay/, but for those of
# what only Redis has.
OF_REDIS = ["test_store_keys"]
# An ordinary user's tests cannot do what finds these.
OF_ROOT = ["others wait for a user whose locks take long", "each user of a namespace counts for itself", "anybody may ask for anybody",
           "its calls count as those of whoever asks", "the numbers of another namespace are ours"]
UNIT = {
    "test_census::a_mapper_with_many_mappings": {
        "who is read slowly is passed over": [become("mappers-stuck", "stuck = !ended && t->at == *at;"),
                                              put("mappers-look", "STUCK_MS", "1")],  # as on a slow machine
    },
    "test_store_scripts": {
        "a release hands over in grace": [put("give-grace", "record[2] == '1'", "true")],
        "a release hands over in a rest": [put("give-rest", "not may_rest()", "true")],
        "a release hands over on another server": [put("give-server", "is_of_this_server(ARGV[1])", "true")],
        "what was handed over has no fence of its own": [become("give-fence", "")],
        "a request waits for a host that is called dead": [put("take-plain", "#ARGV < 16", "true")],
        "a request waits in a rest": [put("take-rest", "not may_rest()", "true")],
        "a request waits for its own host": [put("take-owner", "(e.host ~= w.host or e.file ~= w.file)", "true")],
        "a request that waits is no beat": [become("take-beat", "")],
        "a forgotten waiter keeps others waiting": SIMULATOR["a forgotten waiter keeps others waiting"],
        "a later waiter may be first": SIMULATOR["a later waiter may be first"],
        "the last comes first": HISTORY["the last comes first"][1],
        "nothing clashes in the store": HISTORY["nothing clashes in the store"][1],
        "shared and exclusive get along": SIMULATOR["shared and exclusive get along"],
        "a fence is not compared": SIMULATOR["a fence is not compared"],
    },
    "test_store_rests": {
        "no lock rests": SIMULATOR["no lock rests"],
        "a rest ends with its lock": SIMULATOR["a rest ends with its lock"],
    },
    # The test alone: each starts three servers.
    "test_zookeeper::what_was_looked_at_may_be_somebody_elses": {"what a look has seen is not judged": [condition("zk-wrong", "false")]},
    "test_zookeeper::no_look_serves_after_a_change_of_ones_own": {
        "a look serves after a change": [skip("zk-change")], "a look serves whoever asks": [put("zk-seen", "zq->q.script != SCRIPT_RELEASE || ", "")]},
    "test_zookeeper::nodes_that_have_nothing_go_meanwhile": {"a clean-up meets nobody": [become("zk-clean-record", ";")]},
    "test_zookeeper::a_host_that_came_after_the_backup_finds_it_out": {
        "a host's first change is not remembered": [become("zk-own", "zk_call_free(call);")]},
    "test_zookeeper::a_host_whose_node_was_cleaned_away_takes_that_for_no_backup": {
        "a clean-up of hosts leaves no trace": [condition("zk-clean-host", "false")]},
    "test_zookeeper_trouble::a_host_that_comes_when_the_others_are_listed_for_a_change_of_ttl": {
        "a host that comes changes nothing that a change of ttl_ms looks at": [condition("zk-host", "false")]},
    "test_zookeeper::nodes_that_have_nothing_go": {"a clean-up forgets fences": [become("zk-clean-fence", ";")]},
    "test_zookeeper::a_lock_that_somebody_removed_is_found_out": {
        "a lock that somebody removed is a new one": [become("zk-removed", ";")]},
    "test_zookeeper::folders_from_before_are_another_memory": {
        "an ensemble that was restored is the same": [condition("zk-behind", "false")]},
    "test_zookeeper::all_names_are_looked_at": {
        "in grace a lock is put back where another host has looked": [put("zk-all", "!(store && store->open)", "!store")]},
    "test_zookeeper::messages_for_a_host_that_is_away_have_an_end": {
        "a mailbox is never full": [put("zk-full", "box->children++ >= ZK_MAX_MESSAGES", "false")]},
    "test_replay": {
        "what was read may change before the commit": [skip("replay-read")],
        "fields may come and go before the commit": [skip("replay-whole")],
        "a cell that was read is another when the rest is loaded": [condition("replay-again", "false")],
        "what is loaded takes the place of what the rule wrote": [condition("replay-own", "true")],
        "no key expires": [become("replay-expires", "local till = nil")],
    },
    "test_store_silent": {
        "a host that is named dead is dead": SIMULATOR["a host that is named dead is dead"],
        "a host that was given up renews without a beat": [become("given-up-renews", "return not same and {'INC'} or nil")],
    },
    "test_early": {
        "a probe fires whatever it found": [condition("fire-free", "probe->fire")],
        "the loop does not wait for a thread that fires": [skip("fire-disarmed")],
        "the probe sends, and the table does not say so": SIMULATOR["the probe sends, and the table does not say so"],
    },
    "test_probe": {
        "each local test has a thread": [condition("probe-at-once", "true")],
        "all threads are parked": [put("probe-parked", "probes->parked < PARKED_MAX && ", "")],
        "a thread that has left the table of descriptors goes on": [become("probe-left-table", "return true;")],
    },
    "test_quota": {
        "one user may have all": [condition("quota-each", "false")],
    },
    "test_pagefile": {
        "files whose rule has a limit are shown in the page": [put("page-limited", "file_is_limited(file)", "false")],
        "a lease is shown that is not sure for as long as the page says": [become("page-begin", "return true;")],
    },
    "test_table_kills": {
        "a slot says that it is held before it says what": [
            before("table-granted", "table_put64(&s->word, table_word(TABLE_HELD, range->mode, generation));")],
        "a granted slot has no sum": [skip("table-sum")],
        "shrunk, but exclusive in the table": SIMULATOR["shrunk, but exclusive in the table"],
        "what goes back may open again": [skip("table-returned")],
        "what goes back is forgotten": SIMULATOR["what goes back is forgotten"],
        "holders of lost leases go on": SIMULATOR["holders of lost leases go on"],
        "a parent that dies while it kills leaves the holders": [skip("table-ending")],
        "the present incarnation is written over": [put("table-incarnation", "next % 2", "(next + 1) % 2")],
        "a host has half a name": [before("table-host", "table_put_bytes(t->head->host, host, 1);")],
    },
    "test_table": {
        "a slot is taken without its bit": [skip("table-busy")],
        "leases of one store count for all": [condition("slots-store", "false")],
        "the times of another time namespace count": [condition("table-clock", "true")],
        "two leases of a slot have the same generation": [put("table-generation", " + 1", "")],
        "the parent reads a slot once": [condition("table-again", "true")],
        "a caller of an outage that is over relies on nothing": [condition("lose-sure", "false")],
        "the callers of an outage are forgotten while it lasts": [condition("callers-over", "false")],
    },
    "test_table_damage": {
        "a damaged slot is taken up": [put("table-whole", "s->sum == table_slot_sum(s, generation, t->boot)", "true")],
        "the text of an earlier lease is taken up": [skip("table-text-of")],
        "two slots write to one piece of text": [become("table-pieces", "ret = 0;")],
        "what a keeper disowns is confirmed": [become("disown", ";")],
        "what a keeper disowns is given back": [become("disown-asked", ";")],
        "slots are used that the file has no room for": [become("table-room", "return used;")],
    },
    "test_inspect": {
        "the keeper breaks the kernel's lease of a file": [become("file-lease", "return false;")],
    },
    "test_store_record": {
        "a lost memory begins without grace": SIMULATOR["a lost memory begins without grace"],
        "FLUSHALL is not another incarnation": SIMULATOR["FLUSHALL is not another incarnation"],
        "what an old snapshot says of a lease is put back": SIMULATOR["what an old snapshot says of a lease is put back"],
        "an older fence is put back over a younger one": SIMULATOR["an older fence is put back over a younger one"],
        "what an old snapshot brings back keeps its fence": [condition("old-fence", "false")],
        "a begin of long ago seats a host": [put("seat-begin", "false", "true")],
        "a shard is open before all have the new number": [put("take-opens", " and what ~= 'take'", "")],
        "before Redis 7 a full server refuses beats": [condition("script-oom", "false")],
        "fences run ahead of the clock": [put("fence-ahead", "known >= least and known + 2 ^ 32 or least", "math.max(known + 2 ^ 32, least)")],
        "any keeper sits in any seat": [put("seat", "~= incarnation .. ' ' .. seat", "== ''")],
        "seats outlive the store's memory": [put("seat-incarnation", "string.sub(had, 1, #incarnation + 1) == incarnation .. ' ' and", "")],
    },
    "test_table_rescue": {
        "a table of another boot is taken up": [condition("table-boot", "false")],
        "any times are believed": [put("table-times", "freeze_at > deadline", "false")],
        "leases of a damaged table that are being lost are forgotten": [put("rescue-lease", "state != TABLE_FREE", "state < TABLE_LOST")],
        "what nothing shows to be a table ends processes": [become("rescue-ours", "ret = 1;")],
        "any process may be one that was stopped": [put("rescue-signalled", "stat.started == s->started", "true")],
        "with a damaged head leases are never unsure": [skip("rescue-times")],
        "only whole-file locks of a damaged slot count": [condition("any-space", "false")],
        "a copy of a table is taken up": [put("table-copy", "file[1] &&", "false &&")],
    },
    "test_supervise": {
        "what a dead keeper had is sure": [skip("supervise-unsure")],
        "a keeper that ended and hangs is started again": [skip("supervise-ended")],
        "a keeper that cannot start leaves leases behind": [put("supervise-cannot", "!table_in_use(&s->table)", "true")],
        "a parent without room for a process leaves leases behind": [condition("supervise-no-fork", "true")],
        "two signals at once are two": [condition("supervise-again", "true")],
        "between two keepers no signal is heard": [become("supervise-pause", "usleep(1000);")],
    },
    "test_deadline": {
        "no beat while holders of a lost lease are ended": [put("beat-losing", " && !m->keeper->lost.losing", "")],
        "a host that was given up is sure after its next beat": [put("given-up-late", "m->deadline.given_up && ", "false && ")],
        "one lease that cannot be confirmed stops the time of all": [condition("given-up-refused", "false")]},
    "test_holders": {
        "others wait for a user whose locks take long": [condition("holders-slow", "true")],
        "each user of a namespace counts for itself": [condition("holders-maker", "false")],
        "copies of a descriptor fill the memory": [condition("holders-unite", "false")],
    },
    "test_stopped": {
        "another process with the number is stopped": [put("stopped-another", "stat.started != t->started", "false")],
        "one that was continued meanwhile is not let go": [condition("stopped-before", "false")],
    },
    "test_page": {"a refused call does not wait for the writer of the page": [put("page-pause", "page_pause(q)", "sched_yield()")]},
    "test_relying": {
        "init counts as a holder": [condition("look-init", "false")],
        "one of the first for one store is one for all": [put("look-first", " & store)", ")")],
    },
    "test_family": {
        "marks do not reach what was known before": [put("family-again", "family_mark(family, all[j].pid, marks) && known", "false")],
        "another process with the number is the same": [put("family-living", "family_process_has_ended(member->pid, member->started)", "false")],
    },
    "test_signalled": {"what a script started goes on although its operator has stopped it": [
        put("signalled-group", "signalled_has(s, &all[i], TABLE_STOPPED_KIN)", "signalled_has_kin(s, &all[i])")]},
    "test_ages": {
        "the next keeper knows no grants": [skip("age-kept")],
        "a grant that was half written counts": [put("grants-sum", "r->sum == ages_sum(r)", "true")],
        "grants of long ago count": [put("grants-recent", "!recent || ", "")]},
    "test_leftover": {"what programs had passed is unlocked": [put("leftover-own", "lock->locker == t->pid", "true")]},
    "test_takeup": {
        "a restarted keeper gives back what is in the table": HISTORY["a restarted keeper gives back what is in the table"][1],
        "a lease of a store that is gone is taken up": [condition("takeup-store", "false")],
    },
    "test_store_keys": {
        "any token in a key is the lease's own": [put("key-token", "got == token", "type(got) == 'string' and got ~= ''")],
        "keys are not renewed": [become("key-renew", "")],
        "a key that expired is put back": [put("key-expired", " and now - at <= ms", "")],
        "a key stays when the only lease goes back": [become("give-key", "local has_key = false")],
        "a client's key is deleted": [put("key-drop", "~= 'mine'", "== 'free'")],
        "a key is handed over that a client has": [put("key-hand-over", "not key_take(lock, w, w.ask)", "(key_take(lock, w, w.ask) or true)")],
        "nobody says that a key is left free": [put("key-again", "tells", "false")],
        "a grant that came too late counts": [become("key-unheard", "local lost = nil")],
        "an old snapshot's key stays": [put("reclaim-old-key", "e.key", "false")],
        "clients do not get their turn": [put("key-turn", "now - run >= TURN_MS", "false")],
        "a lease is put back without its key": [put("key-back", "may_put", "false")],
        "a lease that its host does not know keeps its key": [put("key-extra", "redis.call('HLEN', held) - 1 > tonumber(ARGV[4])", "false")],
    },
    "test_act": {
        "the page is not closed when a lease is": SIMULATOR["the page is not closed when a lease is"],
        "the probe sends what is not to go back any more": SIMULATOR["the probe sends what is not to go back any more"],
        "who asked for a shared lease is kept when it is shared": [condition("asked-shared", "false")],
        "a probe that waits answers who asks later": [condition("asked-anew", "lease->state == LEASE_WAITING && asker && "
                                                      "lease_is_probed(lease) && lease->recalled.level == RECALL_RULE")]},
    "test_serve": {
        "callers are granted while their lease is taken away": [condition("serve-breaking", "false")],
        "every caller passes those that wait elsewhere": [condition("newcomer", "true")],
        "callers are granted while the kernel is asked": SIMULATOR["callers are granted while the kernel is asked"],
        "grants everything": MODEL["grants everything"],
    },
    "test_underway": {
        "an entry of another boot counts": [become("file-boot", "return true;")],
        "an entry is there, and nobody looks": [skip("underway-used")],
        "a question from the past ends a call": [condition("underway-stale", "false")]},
    "test_seeout": {
        "whoever sleeps has left the lock call": [put("seeout-elsewhere", "seeout_may_be_lock_call(number)", "false")],
        "a thread that waits is called back at once": [put("seeout-patiently", "how == SEEOUT_PATIENTLY && ", "false && ")],
        "a thread is called back on its way to where it waits": [put("seeout-on-its-way", "SEEOUT_PATIENCE_MS", "0")],
        "who executes another program is waited for by its old number": [put("seeout-exec", "waitpid(-1,", "waitpid(tid,")],
        "what cannot be read has ended": [become("family-ended", "return true;")],
        "one user may have all threads": [put("seeout-room", "users < SEEOUT_USER_MAX / part && ", "")],
        "those for which nobody waits may have all threads": [become("seeout-part", "unsigned part = 1;")],
        "other users may have root's threads": [put("seeout-room", "(uid ? SEEOUT_MAX - SEEOUT_USER_MAX : SEEOUT_MAX)", "SEEOUT_MAX")]},
    "test_deadlock": {
        "a chase goes on from each process": [put("chase-each", "s->waiter.lease->asking.chased == number ||", "")],
        "a search does not wait for the one before": [put("chase-one", "d->searching || ", "")],
        "what has gone is searched for": [put("chase-over", " || !deadlock_is_ours(&file->locks[WIRE_RECORD], range)", "")],
        "a younger call is searched for": [put("chase-younger", "s->waiter.arrival <= youngest", "true")]},
    "test_seenout": {
        "each thread is called back at a time of its own": [put(
            "calledback-pause", "now_ns / cb->all[at].pause_ns == cb->all[at].at_ns / cb->all[at].pause_ns",
            "now_ns - cb->all[at].at_ns < cb->all[at].pause_ns")],
        "a thread is interrupted in the call after the one that was granted": [skip("seenout-drop")],
        "a place that is free stays free": [put("seenout-free", "k->seenout.left", "false")],
        "what is to be looked at soon waits for what is late": [put("seenout-sooner", "uv_timer_get_due_in(again) > ms", "false")]},
    "test_onbehalf": {
        "its calls count as those of whoever asks": [become("onbehalf-owner", "out->uid = peer->uid;")],
        "anybody may ask for anybody": [condition("onbehalf-user", "false")],
        "the numbers of another namespace are ours": [condition("onbehalf-numbers", "false")]},
    "test_lastwords": {
        "the kill overtakes the line": [become("words-ready", "ready = true;")],
        "a line that came too late is written": [condition("words-go", "true")]},
    "test_freezer": {
        "a process that is still in the kernel is spared": [condition("bereft-held", "false")],
        "a process that got the lock while its holders were killed goes on": [skip("break-again")],
        "a stopped holder is killed without its line": [put("farewell-again", "freezer_put_off(f)", "false")],
        "a search for one store goes on when another one is due": [condition("search-end", "false")],
        "what a holder has started goes on when it has ended": [skip("freeze-asked")],
        "a holder that was asked to end is not asked again": [put("look-asked", "~due", "0")],
        "holders of a lease that is lost meanwhile go on": [put("thaw", "SLOTS_DUE", "SLOTS_IN(TABLE_UNSURE)")]},
    "test_status": {"a session that ended is answered": [become("status-session", ";")]},
}

# While these run, other keepers of the machine search for minutes: nothing else may run.
ALONE = ["cluster/test_freeze_hanging.py::test_a_crowd_delays_nobody",
         "cluster/test_freeze_hanging.py::test_status_and_who_beside_a_crowd",
         "cluster/test_freeze_hanging.py::test_a_crowd_delays_no_stop_after_the_deadline"]
