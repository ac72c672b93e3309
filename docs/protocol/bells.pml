/* Waiting without spinning: an executor, an actor and a learner that sleep on doorbells, and the supervisor.
 *
 * There are no deadlines here: whoever sleeps while there is something to do, and nobody will ring, sleeps for ever, and
 * that is a deadlock. Which function of htsrl each part stands for is in README.md.
 */

#ifndef ROLLOUTS
#define ROLLOUTS 3
#endif
#ifndef KILLS
#define KILLS 2
#endif

#define EXECUTOR 0
#define ACTOR 1
#define LEARNER 2
#define WORKERS 3
#define ALIVE 0
#define DOOMED 1
#define DEAD 2

/* Shared memory: a rollout is one request, one answer, one count. */
byte requests, answers, completed_rollouts, published_version;
bool stopping;

bool bells[WORKERS];                         /* Doorbell: an eventfd */
byte life[WORKERS];
byte kills;

#define CAN_ASK (completed_rollouts < ROLLOUTS && requests == completed_rollouts && published_version + 1 >= completed_rollouts)
#define CAN_COUNT (requests > completed_rollouts && answers == requests)
#define CAN_ANSWER (answers != requests)
#define CAN_LEARN (completed_rollouts > published_version)
#define HAS_WORK(me) ((me == EXECUTOR && (CAN_ASK || CAN_COUNT)) || (me == ACTOR && CAN_ANSWER) || (me == LEARNER && CAN_LEARN))

inline ring(whom) {
	bells[whom] = true
}

inline write_word() {
	d_step {
		if
		:: me == EXECUTOR && CAN_ASK -> requests++
		:: me == EXECUTOR && CAN_COUNT -> completed_rollouts++
		:: me == ACTOR -> answers = requests
		:: me == LEARNER -> published_version++
		fi
	}
}

/* Executor.advance, Actor._hand_over, Learner.publish: whoever may now have work. */
inline ring_others() {
	if
	:: me == EXECUTOR -> ring(ACTOR); ring(LEARNER)
	:: me != EXECUTOR -> ring(EXECUTOR)
	fi
}

proctype worker(byte me) {
	do
	:: {
		do
		/* worker._take_turns: advance_all, while there is work */
		:: HAS_WORK(me) ->
#ifdef SEEDED_RING_FIRST
			ring_others();
			write_word()
#else
			write_word();
			ring_others()
#endif
		:: else ->
#ifdef SEEDED_CLEAR_LAST
			if
			:: stopping -> goto stopped
			:: else
			fi;
			bells[me] = false;
			bells[me]
#else
			/* Sleeper.clear; look once more; Sleeper.sleep. Sleeper.sleep_until has the same order. */
			bells[me] = false;
			if
			:: stopping -> goto stopped
			:: !stopping && HAS_WORK(me)
			:: else -> bells[me]                 /* Waiter.wait */
			fi
#endif
		od
	} unless { life[me] == DOOMED };
	life[me] = DEAD;
	if
	:: stopping -> break
	:: life[me] != DEAD
	fi
	od;
stopped:
	skip
}

/* Supervisor._replace: another takes over, and all bells are rung. */
inline replace(whom) {
	life[whom] = ALIVE;
#ifndef SEEDED_NO_RING_AFTER_DEATH
	ring(EXECUTOR);
	ring(ACTOR);
	ring(LEARNER)
#endif
}

/* Its reports and its watch over processes do not go by bells: it is woken by pipes and process descriptors. */
proctype supervisor() {
	do
	:: !stopping && life[EXECUTOR] == DEAD -> replace(EXECUTOR)
	:: !stopping && life[ACTOR] == DEAD -> replace(ACTOR)
	:: !stopping && life[LEARNER] == DEAD -> replace(LEARNER)
	:: published_version == ROLLOUTS ->
		/* Supervisor.stop */
		stopping = true;
		ring(EXECUTOR);
		ring(ACTOR);
		ring(LEARNER);
		break
	od
}

proctype killer() {
	do
	:: stopping -> break
	:: d_step { !stopping && kills < KILLS && life[EXECUTOR] == ALIVE -> life[EXECUTOR] = DOOMED; kills++ }
	:: d_step { !stopping && kills < KILLS && life[ACTOR] == ALIVE -> life[ACTOR] = DOOMED; kills++ }
	:: d_step { !stopping && kills < KILLS && life[LEARNER] == ALIVE -> life[LEARNER] = DOOMED; kills++ }
	od
}

init {
	atomic {
		run worker(EXECUTOR);
		run worker(ACTOR);
		run worker(LEARNER);
		run supervisor();
		run killer()
	}
}
