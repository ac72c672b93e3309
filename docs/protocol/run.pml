/* A run: two executors with an environment each, the actor that serves both, the learner and the supervisor.
 *
 * Every read and write of shared memory that others can see half done is a step of its own; whoever is killed stops
 * between two of them, loses all that it had in its own memory, and is started again. What is checked, what is left
 * out, and which function of htsrl each part stands for is in README.md. `make model` runs it.
 */

#ifndef K
#define K 1                          /* the schedule's lag: 0 is `sync`, 1 is `hts` */
#endif
#ifndef ROLLOUTS
#define ROLLOUTS 3
#endif
#ifndef STEPS
#define STEPS 2                      /* of a rollout */
#endif
#ifndef KILLS
#define KILLS 2
#endif

#define ENVS 2
#define ROWS (STEPS + 1)             /* of observations: one more, for what follows the last step */

#if K > 0 || defined(SEEDED_ONE_STORAGE)
#define STORAGES (K + 1)
#else
#define STORAGES 2                           /* one would lose what a rollout starts from while it is made */
#endif
#ifdef SEEDED_ONE_SLOT_LESS
#define SLOTS (K + 1)
#else
#define SLOTS (K + 2)
#endif
#ifdef SEEDED_TWO_CAPSULES
#define PLACES 2
#elif K > 0
#define PLACES (K + 1)
#else
#define PLACES 2
#endif

/* Who works, and who may be killed. */
#define ACTOR 2
#define LEARNER 3
#define WORKERS 4
#define ALIVE 0
#define DOOMED 1                     /* SIGKILL was sent */
#define DEAD 2

/* What a place in memory holds: nothing, something half written, or something that is known by its number. */
#define NOTHING 0
#define TORN 255
#define SEEN(step) (1 + 2 * (step))          /* the observation after so many steps of the environment */
#define SEEN_LAST(step) (2 + 2 * (step))     /* the same where a time limit cut the episode there */
#define ANSWER(step, version) (1 + (step) + 32 * (version))
#define EARNED(step) (1 + (step))
#define VALUE(step) (1 + (step))

#define CUT(env, step) ((env == 0 && step == 1) || (env == 1 && step == 2 * STEPS))
#define ROW_OF(rollout, row, env) ((((rollout) % STORAGES) * ROWS + (row)) * ENVS + (env))
#define PLACE_OF(rollout, env) (((rollout) % PLACES) * ENVS + (env))
#define SLOT_OF(version) ((version) % SLOTS)
#define STEP_OF(rollout, row) ((rollout) * STEPS + (row))

/* Schedule: hts.Hts.acting_version, sync.Sync.acting_version. */
#define ACTING_VERSION(rollout) ((rollout) > K -> (rollout) - K : 0)
#ifdef SEEDED_STORAGE_TOO_EARLY
#define MAY_BEGIN(rollout) (published_version + 1 >= ACTING_VERSION(rollout))
#else
#define MAY_BEGIN(rollout) (published_version >= ACTING_VERSION(rollout))
#endif

/* Tickets: exchange.Tickets.to_act, for_value, handshake. */
#define TO_ACT(rollout, row) (2 * ((rollout) * ROWS + (row)) + 2)
#define FOR_VALUE(rollout, row) (TO_ACT(rollout, row) - 1)
#define ROLLOUT_OF(ticket) (((ticket) - 1) / 2 / ROWS)
#define TICKET_ROW(ticket) (((ticket) - 1) / 2 % ROWS)
#define IS_FOR_VALUE(ticket) ((ticket) > 0 && (ticket) % 2 == 1)
#define LESS(a, b) ((a) < (b) -> (a) : (b))
#define HANDSHAKE(request, answer) (LESS(LESS(request, answer), 0) - 1)

/* Shared memory. */
short requests[ENVS], answers[ENVS];
byte completed_rollouts[ENVS];
byte published_version;
byte observations[STORAGES * ROWS * ENVS];
byte actions[STORAGES * ROWS * ENVS];    /* with log-probabilities, values, the version: all that is answered */
byte rewards[STORAGES * ROWS * ENVS];    /* with all that an executor writes after a step */
byte bootstrap_values[STORAGES * ROWS * ENVS];
byte capsules[PLACES * ENVS];            /* how many steps the environment had made */
byte slots[SLOTS];                           /* the version whose state it holds, plus one */

/* The pipe from the learner to the supervisor, and the supervisor's own memory. */
chan reports = [ROLLOUTS] of { byte };
byte reported_version;
bool finished;

byte life[WORKERS];
byte kills;

/* ---- What must be so ---- */

/* Rollout `rollout` is all there: made by one version, step by step, none lost, none twice. */
inline assert_whole(rollout) {
	env = 0;
	do
	:: env < ENVS ->
		row = 0;
		do
		:: row < STEPS ->
			step = STEP_OF(rollout, row);
			assert(observations[ROW_OF(rollout, row, env)] == SEEN(step));
			assert(actions[ROW_OF(rollout, row, env)] == ANSWER(step, ACTING_VERSION(rollout)));
			assert(rewards[ROW_OF(rollout, row, env)] == EARNED(step + 1));
			if
			:: CUT(env, (step + 1)) -> assert(bootstrap_values[ROW_OF(rollout, row, env)] == VALUE(step + 1))
			:: else
			fi;
			row++
		:: else -> break
		od;
		assert(observations[ROW_OF(rollout, STEPS, env)] == SEEN(STEP_OF(rollout, STEPS)));
		env++
	:: else -> break
	od;
	env = 0; row = 0; step = 0
}

inline assert_capsules(rollout) {
	assert(capsules[PLACE_OF(rollout, 0)] == STEP_OF(rollout, 0) + 1);
	assert(capsules[PLACE_OF(rollout, 1)] == STEP_OF(rollout, 0) + 1)
}

/* ---- Executor, with the replica of one environment ---- */

proctype executor(byte me) {
	byte rollout, row, steps;                    /* `steps` is the environment: how often it was stepped */

	do
	:: {
		/* EnvRunner.__init__, _come_back */
		d_step {
			rollout = completed_rollouts[me];
			if
			:: rollout > 0 && rollout < ROLLOUTS ->
				steps = capsules[PLACE_OF(rollout, me)] - 1;
				assert(steps == STEP_OF(rollout, 0))
			:: else
			fi
		}
		/* EnvRunner._begin_handshake */
#ifndef SEEDED_NO_HANDSHAKE
		if
		:: rollout < ROLLOUTS && requests[me] != 0 ->
			requests[me] = HANDSHAKE(requests[me], answers[me]);
			(answers[me] == requests[me])
		:: else
		fi;
#endif
		do
		/* EnvRunner._begin_rollout: clear, and begin with what the rollout before ended with */
		:: d_step {
			rollout < ROLLOUTS && MAY_BEGIN(rollout) ->
			do
			:: row < STEPS ->
				actions[ROW_OF(rollout, row, me)] = NOTHING;
				rewards[ROW_OF(rollout, row, me)] = NOTHING;
				bootstrap_values[ROW_OF(rollout, row, me)] = NOTHING;
				row++
			:: else -> break
			od;
			row = 0;
			observations[ROW_OF(rollout, 0, me)] = TORN
		}
		d_step {
			if
			:: rollout == 0 -> steps = 0
			:: else -> assert(observations[ROW_OF(rollout + STORAGES - 1, STEPS, me)] == SEEN(steps))
			fi;
			observations[ROW_OF(rollout, 0, me)] = SEEN(steps)
		}
		do
		/* EnvRunner._ask_for_action */
		:: row < STEPS ->
			requests[me] = TO_ACT(rollout, row);
			/* EnvRunner._step: read the action, step the environment, write what it showed and gave */
			d_step {
				answers[me] == requests[me] ->
				assert(actions[ROW_OF(rollout, row, me)] == ANSWER(steps, ACTING_VERSION(rollout)));
				observations[ROW_OF(rollout, row + 1, me)] = TORN;
				rewards[ROW_OF(rollout, row, me)] = TORN
			}
#ifdef SEEDED_COUNT_FIRST
			if
			:: row + 1 == STEPS ->
				capsules[PLACE_OF(rollout + 1, me)] = steps + 2;
				completed_rollouts[me] = rollout + 1
			:: else
			fi;
#endif
			d_step {
				steps++;
				observations[ROW_OF(rollout, row + 1, me)] = (CUT(me, steps) -> SEEN_LAST(steps) : SEEN(steps));
				rewards[ROW_OF(rollout, row, me)] = EARNED(steps);
				row++
			}
			if
			:: CUT(me, steps) ->
				/* EnvRunner._ask_for_value, _begin_episode */
				requests[me] = FOR_VALUE(rollout, row);
				d_step { answers[me] == requests[me] -> observations[ROW_OF(rollout, row, me)] = TORN }
				observations[ROW_OF(rollout, row, me)] = SEEN(steps)
			:: else
			fi
		/* EnvRunner._complete_rollout, keep_capsule: the capsule, and then the word that says that it counts */
		:: d_step { row == STEPS -> capsules[PLACE_OF(rollout + 1, me)] = TORN }
#ifdef SEEDED_CAPSULE_LAST
			completed_rollouts[me] = rollout + 1;
#endif
			capsules[PLACE_OF(rollout + 1, me)] = steps + 1;
			d_step { rollout++; row = 0; completed_rollouts[me] = rollout }
			break
		od
		od
	} unless { life[me] != ALIVE || finished };
	/* Supervisor._handle_death and _replace: somebody else takes over, who knows what is in shared memory */
	if
	:: finished -> break
	:: else -> d_step { rollout = 0; row = 0; steps = 0; life[me] = ALIVE }
	fi
	od
}

/* ---- Actor ---- */

/* Whether an environment waits for an answer that can be given: a version that is still to come is waited for. */
#define IS_READY(env) (requests[env] != answers[env] && ACTING_VERSION(ROLLOUT_OF(requests[env])) <= published_version)

/* Whether the environment is among those that are answered together now. */
#define TAKEN(env) (asked[env] > 0 && IS_FOR_VALUE(asked[env]) == for_value \
	&& ACTING_VERSION(ROLLOUT_OF(asked[env])) == version)

/* Actor.advance answers version by version, those who want to act before those who want a value. */
inline choose_group() {
	for_value = !((asked[0] > 0 && !IS_FOR_VALUE(asked[0])) || (asked[1] > 0 && !IS_FOR_VALUE(asked[1])));
	version = 255;
	env = 0;
	do
	:: env < ENVS ->
		if
		:: asked[env] > 0 && IS_FOR_VALUE(asked[env]) == for_value ->
			version = LESS(version, ACTING_VERSION(ROLLOUT_OF(asked[env])))
		:: else
		fi;
		env++
	:: else -> break
	od;
	env = 0
}

/* Answers.act and value: read the observations and a version's parameters. */
inline read_group() {
	assert(slots[SLOT_OF(version)] == version + 1);
	env = 0;
	do
	:: env < ENVS ->
		if
		:: TAKEN(env) && !for_value ->
			step = STEP_OF(ROLLOUT_OF(asked[env]), TICKET_ROW(asked[env]));
			assert(observations[ROW_OF(ROLLOUT_OF(asked[env]), TICKET_ROW(asked[env]), env)] == SEEN(step))
		:: TAKEN(env) && for_value ->
			step = STEP_OF(ROLLOUT_OF(asked[env]), TICKET_ROW(asked[env]));
			assert(observations[ROW_OF(ROLLOUT_OF(asked[env]), TICKET_ROW(asked[env]), env)] == SEEN_LAST(step))
		:: else
		fi;
		env++
	:: else -> break
	od;
	env = 0; step = 0
}

/* Actor._act, _value: write what was computed for all of them. */
inline write_group(is_whole) {
	env = 0;
	do
	:: env < ENVS ->
		if
		:: TAKEN(env) ->
			rollout = ROLLOUT_OF(asked[env]);
			row = TICKET_ROW(asked[env]);
			if
			:: !for_value ->
				actions[ROW_OF(rollout, row, env)] = (is_whole -> ANSWER(STEP_OF(rollout, row), version) : TORN)
			:: else ->
				bootstrap_values[ROW_OF(rollout, row - 1, env)] = (is_whole -> VALUE(STEP_OF(rollout, row)) : TORN)
			fi
		:: else
		fi;
		env++
	:: else -> break
	od;
	env = 0; rollout = 0; row = 0
}

proctype actor() {
	short asked[ENVS];
	byte version, env, rollout, row, step;
	bool for_value;

	do
	:: {
		do
		/* Exchange.pending, one environment after the other */
		:: d_step {
			IS_READY(0) || IS_READY(1) ->
			asked[0] = (IS_READY(0) -> requests[0] : 0)
		}
		asked[1] = (IS_READY(1) -> requests[1] : 0);
		do
		/* Actor.advance: handshakes are copied */
		:: d_step { asked[0] < 0 -> answers[0] = asked[0]; asked[0] = 0 }
		:: d_step { asked[0] >= 0 && asked[1] < 0 -> answers[1] = asked[1]; asked[1] = 0 }
		:: d_step { asked[0] >= 0 && asked[1] >= 0 && (asked[0] > 0 || asked[1] > 0) -> choose_group(); read_group() }
#ifdef SEEDED_ANSWER_FIRST
			d_step {
				if
				:: TAKEN(0) -> answers[0] = asked[0]
				:: else
				fi;
				if
				:: TAKEN(1) -> answers[1] = asked[1]
				:: else
				fi
			}
#endif
			d_step { write_group(false) }
			d_step { write_group(true) }
			/* Actor._hand_over: the words, one environment after the other */
			do
			:: d_step { TAKEN(0) -> answers[0] = asked[0]; asked[0] = 0 }
			:: d_step { !TAKEN(0) && TAKEN(1) -> answers[1] = asked[1]; asked[1] = 0 }
			:: else -> break
			od
		:: asked[0] == 0 && asked[1] == 0 -> break
		od
		od
	} unless { life[ACTOR] != ALIVE || finished };
	if
	:: finished -> break
	:: else -> d_step { asked[0] = 0; asked[1] = 0; version = 0; for_value = false; life[ACTOR] = ALIVE }
	fi
	od
}

/* ---- Learner ---- */

/* RolloutFinisher._add_last_values: where the episode goes on after the rollout's last step. */
inline add_last_values(is_whole) {
	env = 0;
	do
	:: env < ENVS ->
		step = STEP_OF(update, STEPS);
		if
		:: CUT(env, step)
		:: else -> bootstrap_values[ROW_OF(update, STEPS - 1, env)] = (is_whole -> VALUE(step) : TORN)
		fi;
		env++
	:: else -> break
	od;
	env = 0; step = 0
}

proctype learner() {
	byte update, env, row, step;

	do
	:: {
		/* Learner.__init__: go on from the newest version */
		d_step {
			life[LEARNER] == ALIVE ->
			update = published_version;
			assert(slots[SLOT_OF(update)] == update + 1)
		}
		do
		/* IntervalFeed.is_ready and check_versions, whose lag is that of the schedule; RolloutFinisher.complete begins */
		:: d_step {
			update < ROLLOUTS && completed_rollouts[0] > update && completed_rollouts[1] > update ->
			assert(update - ACTING_VERSION(update) == LESS(update, K));
			assert_whole(update);
			add_last_values(false)
		}
		/* BackgroundCheckpoints.at_barrier, cut.take_cut: what a checkpoint of this barrier copies */
		d_step { add_last_values(true); assert_capsules(update + 1) }
		/* ParameterRing.draft and the optimizer's steps: two versions are read, the next is written */
		d_step {
			assert_capsules(update + 1);
			assert(slots[SLOT_OF(update)] == update + 1);
			slots[SLOT_OF(update + 1)] = TORN;
			assert(slots[SLOT_OF(ACTING_VERSION(update))] == ACTING_VERSION(update) + 1)
		}
		/* Learner.publish: the version, the report, the word */
		d_step {
			assert_whole(update);
			assert(slots[SLOT_OF(update)] == update + 1);
			slots[SLOT_OF(update + 1)] = update + 2
		}
#ifdef SEEDED_PUBLISH_FIRST
		published_version = update + 1;
		d_step { reports ! update + 1; update++ }
#else
		reports ! update + 1;
		d_step { published_version = update + 1; update++ }
#endif
		od
	} unless { life[LEARNER] == DOOMED || finished };
	if
	:: finished -> break
	:: else -> d_step { update = 0; life[LEARNER] = DEAD }
	fi
	od
}

/* ---- Supervisor ---- */

proctype supervisor() {
	byte version;

	do
	/* Supervisor._listen_to: every version is reported once, in order */
	:: d_step {
		nempty(reports) ->
		reports ? version;
		assert(version == reported_version + 1);
		reported_version = version;
		finished = (version == ROLLOUTS);
		version = 0
	}
	/* Supervisor._handle_death: what is left in the pipe is read, what was reported is published, another learner starts */
#ifdef SEEDED_NO_LAST_LISTENING
	:: d_step {
		!finished && life[LEARNER] == DEAD ->
#else
	:: d_step {
		!finished && life[LEARNER] == DEAD && empty(reports) ->
#endif
#ifndef SEEDED_NO_PUBLISHING_FOR_THE_DEAD
		if
		:: published_version < reported_version -> published_version = reported_version
		:: else
		fi;
#endif
		life[LEARNER] = ALIVE
	}
	:: finished && empty(reports) -> break
	od;
	assert(completed_rollouts[0] == ROLLOUTS && completed_rollouts[1] == ROLLOUTS)
}

/* Kills whom and when it likes. */
proctype killer() {
	do
	:: d_step { !finished && kills < KILLS && life[0] == ALIVE -> life[0] = DOOMED; kills++ }
	:: d_step { !finished && kills < KILLS && life[1] == ALIVE -> life[1] = DOOMED; kills++ }
	:: d_step { !finished && kills < KILLS && life[ACTOR] == ALIVE -> life[ACTOR] = DOOMED; kills++ }
	:: d_step { !finished && kills < KILLS && life[LEARNER] == ALIVE -> life[LEARNER] = DOOMED; kills++ }
	:: finished -> break
	od
}

init {
	atomic {
		slots[0] = 1;                        /* ParameterRing.initialise */
		run executor(0);
		run executor(1);
		run actor();
		run learner();
		run supervisor();
		run killer()
	}
}
