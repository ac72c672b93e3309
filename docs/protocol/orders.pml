/* Gradient orders: the learner, the differentiators that take shards for it, and whoever fills the batch again.
 *
 * Everything that a gradient is taken from has a number, and is torn while it is written; nobody may ever compute from
 * what is torn or of another number. Which function of htsrl each part stands for is in README.md.
 */

#ifndef HELPERS
#define HELPERS 2
#endif
#ifndef UPDATES
#define UPDATES 2
#endif
#ifndef ORDERS
#define ORDERS 2                     /* of an update; the first is PPO's first epoch */
#endif
#ifndef KILLS
#define KILLS 2
#endif

#define LEARNER 0                    /* helpers are 1, 2, ...; the learner takes the first shard */
#define WORKERS (HELPERS + 1)
#define ALIVE 0
#define DOOMED 1

#define TORN 255
#define ORDER(update, index) (1 + (update) * (ORDERS + 1) + (index))
#define UPDATE_OF(order) (((order) - 1) / (ORDERS + 1))
#define INDEX_OF(order) (((order) - 1) % (ORDERS + 1))

/* Shared memory. */
byte order_number, order_text;               /* gradient_order[0], gradient_order[1:] and the chosen sequences */
byte gradient_answers[WORKERS];
byte shard_gradients[WORKERS];               /* the order that a shard was taken for */
byte found_targets[WORKERS];                 /* what PPO's first epoch writes down, by shard: of which update, plus 1 */
byte learner_targets;                        /* what the learner writes, of which update, plus 1 */
byte draft;                                  /* the parameters: how far they have come, as an order */
byte batch;                                  /* the storage: of which update, plus 1 */
byte published_version;

bool finished;
byte life[WORKERS];
byte kills;

#if HELPERS == 2
#define ALL_ANSWERED (gradient_answers[1] == order_number && gradient_answers[2] == order_number)
#define ALL_FOUND(update) (found_targets[0] == update + 1 && found_targets[1] == update + 1 && found_targets[2] == update + 1)
#define ALL_TAKEN(order) (shard_gradients[0] == order && shard_gradients[1] == order && shard_gradients[2] == order)
#else
#define ALL_ANSWERED (gradient_answers[1] == order_number)
#define ALL_FOUND(update) (found_targets[0] == update + 1 && found_targets[1] == update + 1)
#define ALL_TAKEN(order) (shard_gradients[0] == order && shard_gradients[1] == order)
#endif

/* What a gradient is taken from is that of its order. */
inline assert_unchanged(order) {
	assert(order_text == order);
	assert(batch == UPDATE_OF(order) + 1);
	assert(learner_targets == UPDATE_OF(order) + 1);
	assert(draft == order);
	assert(INDEX_OF(order) == 0 || ALL_FOUND(UPDATE_OF(order)))
}

/* GradientShards.take, of one shard: from the first read to the last write. */
inline begin_shard(order, shard) {
	d_step {
		assert_unchanged(order);
		shard_gradients[shard] = TORN;
		if
		:: INDEX_OF(order) == 0 -> found_targets[shard] = TORN   /* PPOObjective._write_down */
		:: else
		fi
	}
}

inline end_shard(order, shard) {
	d_step {
		assert_unchanged(order);
		shard_gradients[shard] = order;
		if
		:: INDEX_OF(order) == 0 -> found_targets[shard] = UPDATE_OF(order) + 1
		:: else
		fi
	}
}

proctype learner() {
	byte update, index;

	do
	:: {
		update = published_version;
		do
		:: update < UPDATES ->
			(batch == update + 1);                       /* IntervalFeed.is_ready */
#ifndef SEEDED_NO_WAIT_FOR_THE_DEAD
			ALL_ANSWERED;                                /* Gradient.begin */
#endif
			draft = TORN;                                /* ParameterRing.draft */
			d_step { draft = ORDER(update, 0); learner_targets = TORN }
			learner_targets = update + 1;                /* ppo_update, a2c_update: Draft.targets */
			do
			/* Gradient._ask, GradientOrders.issue: what the order is about, then its number */
			:: d_step {
				index < ORDERS ->
				assert(ALL_ANSWERED);
#ifdef SEEDED_NUMBER_FIRST
				order_number++;
#endif
				order_text = TORN
			}
			order_text = ORDER(update, index);
#ifndef SEEDED_NUMBER_FIRST
			order_number++;
#endif
			/* Gradient.take: its own shard, then the others' */
			begin_shard(ORDER(update, index), LEARNER);
			end_shard(ORDER(update, index), LEARNER);
#ifndef SEEDED_SUM_FIRST
			ALL_ANSWERED;                                /* Helpers.await_answers */
#endif
			d_step {
				assert(ALL_TAKEN(ORDER(update, index)));
				shard_gradients[LEARNER] = TORN          /* GradientShards.add_up, Draft.clip */
			}
			draft = TORN;                                /* Draft.step */
			d_step { index++; draft = ORDER(update, index) }
			/* Learner.publish */
			:: d_step { index == ORDERS -> published_version = update + 1; update++; index = 0 }
				break
			od
		:: update == UPDATES -> finished = true
		od
	} unless { life[LEARNER] == DOOMED || finished };
	if
	:: finished -> break
	:: else -> d_step { update = 0; index = 0; life[LEARNER] = ALIVE }
	fi
	od;
	assert(published_version == UPDATES)
}

proctype differentiator(byte me) {
	byte order;

	do
	:: {
		do
		/* GradientOrders.pending */
		:: gradient_answers[me] != order_number ->
			order = order_text;
			assert(order != TORN);
#ifdef SEEDED_ANSWER_FIRST
			gradient_answers[me] = order_number;
#endif
			/* GradientWorker.carry_out */
			begin_shard(order, me);
			end_shard(order, me);
			/* GradientOrders.answer */
			d_step { gradient_answers[me] = order_number; order = 0 }
		od
	} unless { life[me] == DOOMED || finished };
	if
	:: finished -> break
	:: else -> d_step { order = 0; life[me] = ALIVE }
	fi
	od
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
#if HELPERS == 2
	:: d_step { !finished && kills < KILLS && life[2] == ALIVE -> life[2] = DOOMED; kills++ }
#endif
	od
}

init {
	atomic {
		run learner();
		run differentiator(1);
#if HELPERS == 2
		run differentiator(2);
#endif
		run executors();
		run killer()
	}
}
