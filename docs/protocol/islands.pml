/* An island: environments and actors on another machine, with a block of shared memory of its own, and what crosses
 * between it and the learner's machine. The island as a whole may die, its memory with it and all that was under way.
 *
 * What passes inside an island, and inside the learner's machine, is run.pml's; here a rollout is one write. Which
 * function of htsrl each part stands for is in README.md.
 */

#ifndef K
#define K 1
#endif
#ifndef ROLLOUTS
#define ROLLOUTS 4
#endif
#ifndef KILLS
#define KILLS 2
#endif
#if K > 0
#define STORAGES (K + 1)
#else
#define STORAGES 2
#endif
#define PLACES STORAGES
#define SLOTS (K + 2)
#define ACTING_VERSION(rollout) ((rollout) > K -> (rollout) - K : 0)

#define TORN 255
#define NOTHING 254

/* The learner's machine. */
byte storages[STORAGES], capsules[PLACES], slots[SLOTS];  /* of which rollout, at the end of how many, of which version */
byte completed, published_version;
/* The island's. */
byte i_storages[STORAGES], i_capsules[PLACES], i_slots[SLOTS];
byte i_completed, i_published, i_known;  /* i_known: rollouts that the learner's machine has, as it is told */
bool i_lives, doomed;
byte ended;                          /* of the island's two processes, once it is doomed */

chan up = [1] of { byte };           /* the answer to Island.collect: which rollout */
chan down = [1] of { byte, byte };   /* Island.publish: from which version to which */

bool finished;
byte kills;

inline forget_all() {
	d_step {
		byte place = 0;
		do
		:: place < STORAGES -> i_storages[place] = NOTHING; i_capsules[place] = NOTHING; place++
		:: else -> break
		od;
		place = 0;
		do
		:: place < SLOTS -> i_slots[place] = NOTHING; place++
		:: else -> break
		od;
		place = 0; i_completed = 0; i_published = 0; i_known = 0
	}
}

/* Executors and actors of the island. */
proctype collectors() {
	byte rollout, version;

	do
	:: {
		do
		:: d_step {
				i_lives && i_completed < ROLLOUTS && i_published >= ACTING_VERSION(i_completed) ->
				rollout = i_completed;
				version = ACTING_VERSION(rollout);
				assert(rollout == 0 || i_storages[(rollout - 1) % STORAGES] == rollout - 1);
				assert(i_capsules[rollout % PLACES] == rollout);
				assert(i_slots[version % SLOTS] == version);
				i_storages[rollout % STORAGES] = TORN
			}
			d_step {
				assert(i_slots[version % SLOTS] == version);
				i_storages[rollout % STORAGES] = rollout;
				i_capsules[(rollout + 1) % PLACES] = TORN
			}
			i_capsules[(rollout + 1) % PLACES] = rollout + 1;
			d_step { i_completed = rollout + 1; rollout = 0; version = 0 }
		:: finished -> break
		od
	} unless { doomed || finished };
	if
	:: finished -> break
	:: else -> d_step { rollout = 0; version = 0; ended++ }; d_step { (!doomed || finished) -> ended-- }
	fi
	od
}

/* The island's own thread: what it sends, and versions that come. */
proctype island() {
	byte version, last;

	do
	:: {
		(i_lives);
		do
		/* Crossing.new_rollouts, Crossing._take */
		:: d_step {
				i_known < i_completed && nfull(up) ->
				assert(i_storages[i_known % STORAGES] == i_known);
				assert(i_capsules[(i_known + 1) % PLACES] == i_known + 1)
			}
			d_step {
				assert(i_storages[i_known % STORAGES] == i_known);
				assert(i_capsules[(i_known + 1) % PLACES] == i_known + 1);
				up!i_known;
				i_known++
			}
		/* Crossing.put_versions */
		:: d_step { nempty(down) -> down?version, last }
			do
			:: version <= last ->
#ifdef SEEDED_VERSION_FIRST
				i_published = version;
#endif
				i_slots[version % SLOTS] = TORN;
				i_slots[version % SLOTS] = version;
				d_step { i_published = version; version++ }
			:: version > last -> d_step { version = 0; last = 0 }; break
			od
		:: finished -> break
		od
	} unless { doomed || finished };
	if
	:: finished -> break
	:: else -> d_step { version = 0; last = 0; ended++ }; d_step { (!doomed || finished) -> ended-- }
	fi
	od
}

/* RemoteIsland, in the supervisor of the learner's machine; with its death all is over. */
proctype driver() {
	byte sent, first, newest, rollout;

	do
	/* RemoteIsland.begin: Crossing.acting_versions, Crossing.whole_rollouts, put_whole */
	:: doomed && ended == 2 ->
		d_step {
			forget_all();
			do
			:: nempty(up) -> up?_
			:: nempty(down) -> down?_, _
			:: empty(up) && empty(down) -> break
			od;
			i_lives = false
		}
		do
		:: d_step {
				newest = published_version;
				first = (newest > K -> newest - K : 0);
				rollout = first
			}
			do
			:: d_step { rollout <= newest -> i_slots[rollout % SLOTS] = slots[rollout % SLOTS]; rollout++ }
			:: rollout > newest -> break
			od;
			if
			:: published_version + 1 - first >= SLOTS -> skip       /* is_intact */
			:: else -> break
			fi
		od;
		skip;
		d_step {
			rollout = 0;
			i_published = newest;
			i_completed = completed;
#ifndef SEEDED_SENT_AGAIN
			i_known = completed;
#endif
			i_capsules[completed % PLACES] = capsules[completed % PLACES];
			if
			:: completed > 0 -> i_storages[(completed - 1) % STORAGES] = storages[(completed - 1) % STORAGES]
			:: else
			fi;
			sent = newest;
			newest = 0; first = 0;
			doomed = false;
			i_lives = true
		}
	/* RemoteIsland._take_in, Crossing.put_next */
	:: d_step { !doomed && nempty(up) -> up?rollout; assert(rollout == completed); storages[rollout % STORAGES] = TORN }
#ifdef SEEDED_COUNT_FIRST
		completed = rollout + 1;
#endif
		d_step { storages[rollout % STORAGES] = rollout; capsules[(rollout + 1) % PLACES] = rollout + 1 }
		d_step { completed = rollout + 1; rollout = 0 }
	/* RemoteIsland._publish, Crossing.versions */
	:: d_step { !doomed && published_version > sent && nfull(down) -> newest = published_version; first = sent + 1 }
		do
		:: d_step { first <= newest -> assert(slots[first % SLOTS] == first); first++ }
		:: d_step { first > newest -> first = 0 }; break
		od;
		skip;
		d_step {
			if
			:: !doomed -> down!sent + 1, newest; sent = newest
			:: else
			fi;
			newest = 0
		}
	:: finished -> break
	od
}

proctype learner() {
	byte update;

	do
	:: update < ROLLOUTS ->
		(completed > update);                            /* IntervalSource.is_ready */
		d_step {
			assert(storages[update % STORAGES] == update);
			assert(slots[update % SLOTS] == update);
			slots[(update + 1) % SLOTS] = TORN               /* ParameterRing.draft */
		}
		d_step {
			assert(storages[update % STORAGES] == update);
			slots[(update + 1) % SLOTS] = update + 1
		}
		d_step { published_version = update + 1; update++ }
	:: update == ROLLOUTS -> break
	od;
	finished = true
}

proctype killer() {
	do
	:: finished -> break
	:: d_step { !finished && kills < KILLS && i_lives && !doomed && ended == 0 -> doomed = true; kills++ }
	od
}

init {
	atomic {
		forget_all();
		storages[0] = NOTHING; storages[1] = NOTHING; capsules[1] = NOTHING; slots[1] = NOTHING;
		i_capsules[0] = 0; i_slots[0] = 0; i_lives = true;
		run learner();
		run driver();
		run island();
		run collectors();
		run killer()
	}
}
