/* Meetings of learners that have parameters of their own: replica 0 waits for the drafts of all, merges them where the
 * sync rule says so, and publishes the next version of all at once.
 *
 * What a draft, a result or a state is about is a number, and torn while it is written. Which function of htsrl each
 * part stands for is in README.md.
 */

#ifndef UPDATES
#define UPDATES 4
#endif
#ifndef KILLS
#define KILLS 2
#endif

#define REPLICAS 2
#define ALIVE 0
#define DOOMED 1

#define TORN 255
#define NOTHING 254
#define MEETS(version) ((version) % 2 == 0)  /* the rule's decision, which follows from reports and its state */
#define DRAFTED(version) (100 + (version))
#define MERGED(version) (version)
#define FINAL(version) (MEETS(version) -> MERGED(version) : DRAFTED(version))
#define SLOT(version, replica) (((version) % 2) * REPLICAS + (replica))

/* Shared memory. */
byte slots[2 * REPLICAS];            /* parameters and optimizer: the version that an update starts from, and its draft */
byte merged[REPLICAS];               /* what a meeting comes to */
byte merged_version;
byte drafted[REPLICAS];
byte replica_reports[REPLICAS];      /* of which version */
byte sync_states[2];                 /* the rule's, of which version */
byte batch;                          /* all storages: of which update, plus 1 */
byte published_version;

bool finished;
byte life[REPLICAS];
byte kills;

/* Updater.learn: from the first read to the last write. */
inline make_draft(update, replica) {
	d_step {
		assert(batch == update + 1);
		assert(slots[SLOT(update, replica)] == FINAL(update));
		slots[SLOT(update + 1, replica)] = TORN
	}
	d_step {
		assert(batch == update + 1);
		assert(slots[SLOT(update, replica)] == FINAL(update));
		slots[SLOT(update + 1, replica)] = DRAFTED(update + 1)
	}
}

proctype replica_learner(byte me) {
	byte update;

	do
	:: {
		do
		:: update = published_version;
			/* ReplicaLearner.advance */
			(finished || (update < UPDATES && drafted[me] != update + 1 && batch == update + 1 && update == published_version) || update != published_version);
			if
			:: finished -> break
			:: !finished && update == published_version && drafted[me] != update + 1 && batch == update + 1 ->
#ifdef SEEDED_WORD_FIRST
				drafted[me] = update + 1;
#endif
				make_draft(update, me);
				/* ReplicaWords.note_draft */
				replica_reports[me] = TORN;
				replica_reports[me] = update + 1;
				drafted[me] = update + 1
			:: else
			fi
		od
	} unless { life[me] == DOOMED };
	if
	:: finished -> break
	:: else -> d_step { update = 0; life[me] = ALIVE }
	fi
	od
}

proctype learner() {
	byte update;

	do
	:: {
		update = published_version;
		do
		:: update < UPDATES ->
			(batch == update + 1);                       /* IntervalSource.is_ready */
			make_draft(update, 0);
			/* Meetings.hold */
#ifndef SEEDED_NO_WAIT
			(drafted[1] == update + 1);
#endif
			assert(replica_reports[1] == update + 1);
			assert(sync_states[update % 2] == update);
			if
			:: MEETS(update + 1) ->
				/* Meetings._merge, MergedModel.merge */
				if
				:: merged_version != update + 1 ->
					d_step {
						assert(slots[SLOT(update + 1, 0)] == DRAFTED(update + 1));
						assert(slots[SLOT(update + 1, 1)] == DRAFTED(update + 1));
						merged[0] = TORN; merged[1] = TORN
					}
					d_step {
						assert(slots[SLOT(update + 1, 0)] == DRAFTED(update + 1));
						assert(slots[SLOT(update + 1, 1)] == DRAFTED(update + 1));
						merged[0] = MERGED(update + 1); merged[1] = MERGED(update + 1)
					}
#ifndef SEEDED_MERGED_LATE
					merged_version = update + 1              /* ReplicaWords.note_merged */
#endif
				:: else
				fi;
				/* MergedModel.take_over */
				d_step { assert(merged[0] == MERGED(update + 1)); slots[SLOT(update + 1, 0)] = TORN }
				slots[SLOT(update + 1, 0)] = merged[0];
				d_step { assert(merged[1] == MERGED(update + 1)); slots[SLOT(update + 1, 1)] = TORN }
				slots[SLOT(update + 1, 1)] = merged[1];
#ifdef SEEDED_MERGED_LATE
				merged_version = update + 1
#endif
			:: else
			fi;
			sync_states[(update + 1) % 2] = TORN;
			sync_states[(update + 1) % 2] = update + 1;
			/* Learner.publish; its report, and what a death between the two means, is run.pml's */
			d_step {
				assert(slots[SLOT(update + 1, 0)] == FINAL(update + 1));
				assert(slots[SLOT(update + 1, 1)] == FINAL(update + 1));
				assert(sync_states[(update + 1) % 2] == update + 1);
				published_version = update + 1;
				update++
			}
		:: update == UPDATES -> finished = true
		od
	} unless { life[0] == DOOMED || finished };
	if
	:: finished -> break
	:: else -> d_step { update = 0; life[0] = ALIVE }
	fi
	od;
	assert(published_version == UPDATES)
}

/* Executors and actors: once the next version is published they may write into the storage that was read. */
proctype executors() {
	do
	:: finished -> break
	:: !finished && batch < published_version + 1 && published_version < UPDATES ->
		batch = TORN;
		batch = published_version + 1
	od
}

proctype killer() {
	do
	:: finished -> break
	:: d_step { !finished && kills < KILLS && life[0] == ALIVE -> life[0] = DOOMED; kills++ }
	:: d_step { !finished && kills < KILLS && life[1] == ALIVE -> life[1] = DOOMED; kills++ }
	od
}

init {
	atomic {
		slots[SLOT(0, 0)] = FINAL(0);
		slots[SLOT(0, 1)] = FINAL(0);
		slots[SLOT(1, 0)] = NOTHING;
		slots[SLOT(1, 1)] = NOTHING;
		run learner();
		run replica_learner(1);
		run executors();
		run killer()
	}
}
