/* Tests of every sentence in rte_timer.h. The program runs with DPDK's headers, and without. */
#define ALLOW_EXPERIMENTAL_API
#include <rte_timer.h>

#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define FAR (UINT64_C(1) << 50)

/* Makes the calling thread this lcore. */
static void lcore_is(unsigned int lcore)
{
#ifdef STILL_RTE_DPDK
    RTE_PER_LCORE(_lcore_id) = lcore;
#else
    CHECK(still_rte_lcore_set(lcore) == 0);
#endif
}

static int fired;
static void *given;

static void count(struct rte_timer *timer, void *argument)
{
    CHECK(timer->status.state == RTE_TIMER_RUNNING && timer->arg == argument);
    given = argument;
    fired++;
}

static void not_yet(void)
{
    struct rte_timer timer = RTE_TIMER_INITIALIZER;
    uint32_t id = 0;
    CHECK(rte_timer_manage() == -EINVAL && rte_timer_next_ticks() == -EINVAL && rte_timer_dump_stats(stdout) == -EINVAL);
    CHECK(rte_timer_reset(&timer, 1, SINGLE, 0, count, NULL) == -EINVAL && rte_timer_stop(&timer) == -EINVAL);
    CHECK(rte_timer_data_alloc(&id) == -ENOMEM && rte_timer_data_dealloc(0) == -EINVAL);
    SAYS("call rte_timer_subsystem_init first");
    rte_timer_subsystem_finalize();
}

static void once(void)
{
    struct rte_timer timer = RTE_TIMER_INITIALIZER;
    CHECK(rte_timer_pending(&timer) == 0 && rte_timer_next_ticks() == -ENOENT && rte_timer_stop(&timer) == 0);
    fired = 0;
    CHECK(rte_timer_reset(&timer, 0, SINGLE, 0, count, &fired) == 0);
    CHECK(rte_timer_pending(&timer) == 1 && rte_timer_next_ticks() == 0);
    CHECK(rte_timer_manage() == 0 && fired == 1 && given == &fired);
    CHECK(timer.status.state == RTE_TIMER_STOP && timer.status.owner == RTE_TIMER_NO_OWNER && rte_timer_pending(&timer) == 0);
    CHECK(rte_timer_manage() == 0 && fired == 1);

    uint64_t before = rte_get_timer_cycles();
    CHECK(rte_timer_reset(&timer, FAR, PERIODICAL, 0, count, &given) == 0);
    CHECK(timer.expire >= before + FAR && timer.expire <= rte_get_timer_cycles() + FAR);
    CHECK(timer.period == FAR && timer.f == count && timer.arg == &given);
    CHECK(timer.status.state == RTE_TIMER_PENDING && timer.status.owner == 0);
    int64_t left = rte_timer_next_ticks();
    CHECK(left > 0 && left <= (int64_t)FAR && rte_timer_manage() == 0 && fired == 1);
    /* The timer gets an earlier deadline, a later one, and another lcore. */
    CHECK(rte_timer_reset(&timer, 0, SINGLE, 0, count, &fired) == 0 && timer.period == 0);
    CHECK(rte_timer_reset(&timer, FAR, SINGLE, 0, count, &fired) == 0);
    CHECK(rte_timer_manage() == 0 && fired == 1);
    CHECK(rte_timer_reset(&timer, 0, SINGLE, 3, count, &fired) == 0 && timer.status.owner == 3);
    CHECK(rte_timer_manage() == 0 && fired == 1 && rte_timer_next_ticks() == -ENOENT);
    CHECK(rte_timer_reset(&timer, 0, SINGLE, 0, count, &fired) == 0 && rte_timer_manage() == 0 && fired == 2);
    CHECK(rte_timer_reset(&timer, 0, SINGLE, RTE_MAX_LCORE, count, NULL) == -EINVAL);
    SAYS("lcores are below ");
    rte_timer_reset_sync(&timer, 0, SINGLE, 0, count, &fired);
    rte_timer_stop_sync(&timer);
    memset((void *)&timer, 0xaa, sizeof timer);
    CHECK(rte_timer_manage() == 0 && fired == 2);
    rte_timer_init(&timer);
    CHECK(timer.status.state == RTE_TIMER_STOP && timer.status.owner == RTE_TIMER_NO_OWNER);
    CHECK(rte_timer_reset(&timer, 0, SINGLE, 0, count, &fired) == 0 && rte_timer_manage() == 0 && fired == 3);
    memset((void *)&timer, 0, sizeof timer);
    CHECK(rte_timer_reset(&timer, 0, SINGLE, 0, count, &fired) == 0 && rte_timer_stop(&timer) == 0);
    CHECK(rte_timer_manage() == 0 && fired == 3);
}

/* What a timer's function may do. */
static struct rte_timer two[2];

static void stop_itself(struct rte_timer *timer, void *argument)
{
    (void)argument;
    fired++;
    CHECK(rte_timer_stop(timer) == 0 && rte_timer_stop(timer) == 0);
    memset((void *)timer, 0xaa, sizeof *timer);
    free(timer);
}

static void stop_other(struct rte_timer *timer, void *argument)
{
    struct rte_timer *other = &two[timer == &two[0]];
    CHECK(timer->status.owner == 0 && argument == NULL);
    fired++;
    CHECK(rte_timer_stop(other) == 0);
    memset((void *)other, 0xaa, sizeof *other);
}

static void reset_itself(struct rte_timer *timer, void *argument)
{
    fired++;
    CHECK(rte_timer_reset(timer, 0, SINGLE, 0, count, argument) == 0 && rte_timer_pending(timer) == 1);
}

static void slowly_again(struct rte_timer *timer, void *argument)
{
    uint64_t begin = rte_get_timer_cycles();
    UNTIL(rte_get_timer_cycles() > begin + 10000);
    fired++;
    CHECK(fired < 100 && rte_timer_reset(timer, 0, SINGLE, 0, slowly_again, argument) == 0);
}

static void in_functions(void)
{
    for (int type = SINGLE; type <= PERIODICAL; type++) {
        struct rte_timer *timer = (struct rte_timer *)malloc(sizeof *timer);
        rte_timer_init(timer);
        fired = 0;
        CHECK(rte_timer_reset(timer, 1, (enum rte_timer_type)type, 0, stop_itself, NULL) == 0);
        UNTIL(rte_timer_manage() == 0 && fired == 1);
        CHECK(rte_timer_next_ticks() == -ENOENT);

        /* Two timers are due; one stops the other. */
        for (int which = 0; which < 2; which++) {
            rte_timer_init(&two[which]);
            CHECK(rte_timer_reset(&two[which], 0, SINGLE, 0, stop_other, NULL) == 0);
        }
        CHECK(rte_timer_manage() == 0 && fired == 2 && rte_timer_next_ticks() == -ENOENT);

        /* A timer that the function resets is due at the next call. */
        rte_timer_init(&two[0]);
        CHECK(rte_timer_reset(&two[0], 0, (enum rte_timer_type)type, 0, reset_itself, &given) == 0);
        CHECK(rte_timer_manage() == 0 && fired == 3 && rte_timer_pending(&two[0]) == 1 && two[0].f == count);
        CHECK(rte_timer_manage() == 0 && fired == 4 && rte_timer_pending(&two[0]) == 0);

        /* A call handles any number of timers, however long their functions take. */
        fired = 0;
        for (int which = 0; which < 2; which++)
            CHECK(rte_timer_reset(&two[which], 0, SINGLE, 0, slowly_again, NULL) == 0);
        for (int calls = 1; calls < 5; calls++)
            CHECK(rte_timer_manage() == 0 && fired == 2 * calls);
        CHECK(rte_timer_stop(&two[0]) == 0 && rte_timer_stop(&two[1]) == 0);
    }
}

/* A function that initialises its timer again, and arms or frees it. The call does not touch the timer after that. */
static void initialise(struct rte_timer *timer, void *argument)
{
    fired++;
    memset((void *)timer, 0xaa, sizeof *timer);
    rte_timer_init(timer);
    if (argument == NULL) {
        CHECK(rte_timer_reset(timer, FAR, SINGLE, 3, count, NULL) == 0);
    } else {
        CHECK(rte_timer_stop(timer) == 0);
        memset((void *)timer, 0xaa, sizeof *timer);
    }
}

/* A function that calls rte_timer_manage, which calls the functions of other timers that are due. These may stop or reset this timer. */
static struct rte_timer outermost;
static int deep;

static void stop_outermost(struct rte_timer *timer, void *argument)
{
    (void)timer;
    CHECK(deep == 1);
    fired++;
    if (argument == NULL) {
        CHECK(rte_timer_stop(&outermost) == 0);
        memset((void *)&outermost, 0xaa, sizeof outermost);
    }
}

static void manage_within(struct rte_timer *timer, void *argument)
{
    fired++;
    CHECK(rte_timer_reset(&two[0], 0, SINGLE, 0, stop_outermost, argument) == 0 && rte_timer_reset(&two[1], 0, PERIODICAL, 0, count, NULL) == 0);
    deep = 1;
    CHECK(rte_timer_manage() == 0 && fired == 3 && timer == &outermost);
    deep = 0;
    CHECK(rte_timer_stop(&two[1]) == 0);
}

static void within(void)
{
    for (int type = SINGLE; type <= PERIODICAL; type++) {
        struct rte_timer timer = RTE_TIMER_INITIALIZER;
        fired = 0;
        CHECK(rte_timer_reset(&timer, 1, (enum rte_timer_type)type, 0, initialise, NULL) == 0);
        UNTIL(rte_timer_manage() == 0 && fired == 1);
        CHECK(timer.status.state == RTE_TIMER_PENDING && timer.status.owner == 3 && timer.period == 0 && rte_timer_next_ticks() == -ENOENT);
        CHECK(rte_timer_reset(&timer, 1, (enum rte_timer_type)type, 0, initialise, &given) == 0);
        UNTIL(rte_timer_manage() == 0 && fired == 2);
        for (size_t at = 0; at < sizeof timer; at++)
            CHECK(((unsigned char *)&timer)[at] == 0xaa);
        CHECK(rte_timer_next_ticks() == -ENOENT);

        rte_timer_init(&two[0]);
        rte_timer_init(&two[1]);
        rte_timer_init(&outermost);
        for (int stops = 0; stops < 2; stops++) {
            fired = 0;
            CHECK(rte_timer_reset(&outermost, FAR * (uint64_t)type, (enum rte_timer_type)type, 0, count, NULL) == 0);
            CHECK(rte_timer_reset(&outermost, 0, SINGLE, 0, manage_within, stops ? NULL : &given) == 0);
            CHECK(rte_timer_manage() == 0 && fired == 3 && rte_timer_next_ticks() == -ENOENT);
            CHECK(stops || outermost.status.state == RTE_TIMER_STOP);
        }
        CHECK(((unsigned char *)&outermost)[sizeof outermost - 1] == 0xaa);
    }
}

static void periodic(void)
{
    struct rte_timer timer = RTE_TIMER_INITIALIZER;
    fired = 0;
    CHECK(rte_timer_reset(&timer, 1, PERIODICAL, 0, count, NULL) == 0);
    uint64_t first = timer.expire;
    /* The timer is always late. Each rte_timer_manage calls its function once, and no period is left out. */
    UNTIL(rte_get_timer_cycles() > first + 100);
    for (int beat = 1; beat <= 100; beat++) {
        CHECK(rte_timer_manage() == 0 && fired == beat && timer.expire == first + (uint64_t)beat);
        CHECK(timer.status.state == RTE_TIMER_PENDING && timer.status.owner == 0);
    }
    CHECK(rte_timer_stop(&timer) == 0 && rte_timer_manage() == 0 && fired == 100);
}

/* One call calls the functions of all timers that are due. */
enum { MANY = 30000 };

static struct rte_timer many[MANY];

static void crowds(void)
{
    for (uint64_t spread = 0; spread < 3; spread++) {
        uint64_t last = 0;
        fired = 0;
        for (int at = 0; at < MANY; at++) {
            rte_timer_init(&many[at]);
            uint64_t ticks = 20000 + (spread == 0 ? 0 : (uint64_t)at * 7919 % (spread * 300000));
            CHECK(rte_timer_reset(&many[at], ticks, SINGLE, 0, count, NULL) == 0);
            last = many[at].expire > last ? many[at].expire : last;
        }
        UNTIL(rte_get_timer_cycles() > last);
        CHECK(rte_timer_manage() == 0 && fired == MANY && rte_timer_next_ticks() == -ENOENT);
    }
    /* All have the same deadline, in a wide slot that is not over when they are due. */
    uint64_t then = rte_get_timer_cycles() + (UINT64_C(1) << 26) + 12345;
    uint64_t last = then;
    fired = 0;
    for (int at = 0; at < MANY; at++) {
        CHECK(rte_timer_reset(&many[at], then - rte_get_timer_cycles(), SINGLE, 0, count, NULL) == 0);
        last = many[at].expire > last ? many[at].expire : last;
    }
    UNTIL(rte_get_timer_cycles() > last);
    CHECK(rte_timer_manage() == 0 && fired == MANY);
    /* Resets the timers in a mixed order, while some of them are due. */
    fired = 0;
    for (int round = 0; round < 3; round++)
        for (int at = 0; at < MANY; at++)
            CHECK(rte_timer_reset(&many[at * 7 % MANY], (uint64_t)(at % 5000), SINGLE, 0, count, NULL) == 0);
    UNTIL(rte_timer_manage() == 0 && rte_timer_next_ticks() == -ENOENT);
    CHECK(fired == MANY);
}

/* A timer of another lcore, which is another thread. */
static int runs, may_end, done;

/* The counter of another lcore is ahead: its additions bring no timer of this one forward. */
static void counters_that_differ(void)
{
    struct rte_timer beat = RTE_TIMER_INITIALIZER, later = RTE_TIMER_INITIALIZER, added = RTE_TIMER_INITIALIZER;
    const uint64_t ahead = UINT64_C(1) << 32, soon = ahead - (ahead >> 4);
    fired = 0;
    CHECK(rte_timer_reset(&later, soon, SINGLE, 0, count, NULL) == 0);
    CHECK(rte_timer_reset(&beat, 1, PERIODICAL, 0, count, NULL) == 0);
    CHECK(still_rte_timer_reset_(0, &added, rte_get_timer_cycles() + ahead, FAR, 0, 1, 0, count, NULL) == 0);
    for (int beats = 1; beats < 3; beats++) {
        uint64_t before = rte_get_timer_cycles();
        while (rte_get_timer_cycles() == before) {
        }
        CHECK(rte_timer_manage() == 0 && fired >= beats);
    }
    int is_pending = rte_timer_pending(&later);
    CHECK(is_pending == 1 || rte_get_timer_cycles() >= later.expire);
    CHECK(rte_timer_pending(&added) == 1);
    CHECK(rte_timer_stop(&beat) == 0 && rte_timer_stop(&later) == 0 && rte_timer_stop(&added) == 0);
}

static void slow(struct rte_timer *timer, void *argument)
{
    (void)argument;
    CHECK(timer->status.owner == 5);
    STORE(runs, 1);
    UNTIL(LOAD(may_end));
}

static void *manage_it(void *argument)
{
    lcore_is(*(unsigned int *)argument);
    while (!LOAD(done)) {
        CHECK(rte_timer_manage() == 0);
        sched_yield();
    }
    return NULL;
}

static void *end_it(void *unused)
{
    (void)unused;
    sched_yield();
    STORE(may_end, 1);
    return NULL;
}

static void elsewhere(void)
{
    struct rte_timer timer = RTE_TIMER_INITIALIZER;
    unsigned int five = 5;
    pthread_t thread = started(manage_it, &five);
    for (int sync = 0; sync < 3; sync++) {
        runs = may_end = 0;
        CHECK(rte_timer_reset(&timer, 0, SINGLE, 5, slow, NULL) == 0);
        UNTIL(LOAD(runs));
        CHECK(rte_timer_pending(&timer) == 0 && rte_timer_stop(&timer) == -1);
        CHECK(rte_timer_reset(&timer, 0, SINGLE, 0, count, NULL) == -1);
        pthread_t ender = started(end_it, NULL);
        switch (sync) {
        case 0:
            rte_timer_stop_sync(&timer);
            break;
        case 1:
            rte_timer_reset_sync(&timer, FAR, SINGLE, 5, count, NULL);
            CHECK(rte_timer_pending(&timer) == 1 && rte_timer_stop(&timer) == 0);
            break;
        default:
            UNTIL(rte_timer_stop(&timer) == 0);
        }
        joined(ender);
        memset((void *)&timer, 0xaa, sizeof timer);
        rte_timer_init(&timer);
    }
    STORE(done, 1);
    joined(thread);
    done = 0;
}

static void *no_lcore(void *argument)
{
    struct rte_timer *timer = (struct rte_timer *)argument;
    CHECK(rte_lcore_id() == LCORE_ID_ANY && rte_timer_manage() == -EINVAL && rte_timer_next_ticks() == -EINVAL);
    SAYS("this thread is no lcore: call still_rte_lcore_set");
    CHECK(rte_timer_reset(timer, FAR, SINGLE, 0, count, NULL) == 0 && rte_timer_stop(timer) == 0);
    CHECK(rte_timer_reset(timer, 0, SINGLE, 0, count, NULL) == 0);
    return NULL;
}

static void threads_that_are_none(void)
{
    struct rte_timer timer = RTE_TIMER_INITIALIZER;
    fired = 0;
    joined(started(no_lcore, &timer));
    CHECK(rte_timer_manage() == 0 && fired == 1);
}

/* Instances. */
static int seen;

static void see(struct rte_timer *timer)
{
    CHECK(timer->status.state == RTE_TIMER_RUNNING && timer->status.owner == 0 && timer->f == NULL);
    seen++;
}

static void free_it(struct rte_timer *timer, void *argument)
{
    CHECK(argument == &seen && rte_timer_pending(timer) == 0);
    memset((void *)timer, 0xaa, sizeof *timer);
    free(timer);
    seen++;
}

static struct rte_timer wanderer;
static uint32_t other_instance;

static void stop_it_again(struct rte_timer *timer, void *argument)
{
    CHECK(rte_timer_alt_reset(*(uint32_t *)argument, timer, 0, SINGLE, 0, NULL, NULL) == 0);
    seen++;
}

static void arm_earlier(struct rte_timer *timer, void *argument)
{
    CHECK(rte_timer_alt_reset(*(uint32_t *)argument, timer, 1000, SINGLE, 0, NULL, NULL) == 0);
    seen++;
}

static uint32_t freed_inside;
static unsigned int *freed_numbers;
static struct rte_timer one_of_two, other_of_two;

/* Also the timers that are pending: the library does not touch them any more. */
static void free_the_instance(struct rte_timer *timer)
{
    CHECK(seen++ == 0 && rte_timer_data_dealloc(freed_inside) == 0);
    memset(timer == &one_of_two ? (void *)&other_of_two : (void *)&one_of_two, 0xaa, sizeof one_of_two);
    free(freed_numbers);
}

static void free_the_instance_of(struct rte_timer *timer, void *unused)
{
    (void)unused;
    free_the_instance(timer);
}

/* The function that a call calls may free the instance. */
static void freed_by_a_callback(void)
{
    for (int way = 0; way < 2; way++) {
        seen = 0;
        rte_timer_init(&one_of_two);
        rte_timer_init(&other_of_two);
        CHECK(rte_timer_data_alloc(&freed_inside) == 0);
        CHECK(rte_timer_alt_reset(freed_inside, &one_of_two, way ? FAR : 0, SINGLE, 0, NULL, NULL) == 0);
        CHECK(rte_timer_alt_reset(freed_inside, &other_of_two, way ? FAR : 1, PERIODICAL, 0, NULL, NULL) == 0);
        UNTIL(way || rte_get_timer_cycles() > other_of_two.expire);
        unsigned int list = 0;
        freed_numbers = (unsigned int *)calloc(2, sizeof *freed_numbers);
        freed_numbers[1] = 1;
        if (way)
            CHECK(rte_timer_stop_all(freed_inside, freed_numbers, 2, free_the_instance_of, NULL) == 0);
        else
            CHECK(rte_timer_alt_manage(freed_inside, freed_numbers, 2, free_the_instance) == 0);
        CHECK(seen == 1 && rte_timer_alt_manage(freed_inside, &list, 1, free_the_instance) == -EINVAL);
    }
}

static void beats(struct rte_timer *timer)
{
    CHECK(timer->status.state == RTE_TIMER_RUNNING);
    seen++;
}

static void go_there(struct rte_timer *timer, void *argument)
{
    CHECK(timer == &wanderer && argument == NULL);
    fired++;
    CHECK(rte_timer_alt_reset(other_instance, timer, FAR, SINGLE, 2, NULL, NULL) == 0);
}

/* A timer that is in one instance, and is reset or stopped in another one. */
static void several_instances(void)
{
    uint32_t id = 0;
    unsigned int lists[3] = { 5, 0, 7 };
    CHECK(rte_timer_data_alloc(&id) == 0);
    other_instance = id;
    struct rte_timer neighbours[4];
    uint32_t where[4] = { 0, id, 0, id };
    for (int at = 0; at < 4; at++) {
        rte_timer_init(&neighbours[at]);
        CHECK(rte_timer_alt_reset(where[at], &neighbours[at], FAR, SINGLE, 0, count, NULL) == 0);
    }
    rte_timer_init(&wanderer);
    for (int rounds = 0; rounds < 8; rounds++) {
        uint32_t from = where[rounds % 4], to = where[rounds / 2 % 4];
        CHECK(rte_timer_alt_reset(from, &wanderer, FAR, SINGLE, 0, count, NULL) == 0);
        memset((void *)&wanderer.expire, 0xaa, sizeof wanderer.expire);
        CHECK(rte_timer_alt_reset(to, &wanderer, FAR, SINGLE, rounds % 3 ? 0 : 7, count, NULL) == 0);
        CHECK(rte_timer_alt_stop(from, &wanderer) == 0);
        memset((void *)&wanderer, 0xaa, sizeof wanderer);
        rte_timer_init(&wanderer);
    }
    fired = seen = 0;
    CHECK(rte_timer_reset(&wanderer, 0, PERIODICAL, 0, go_there, NULL) == 0 && rte_timer_manage() == 0 && fired == 1);
    CHECK(rte_timer_pending(&wanderer) == 1 && wanderer.status.owner == 2 && wanderer.period == 0);
    CHECK(rte_timer_stop(&wanderer) == 0);
    /* All lists are intact. */
    for (int at = 0; at < 4; at++)
        CHECK(rte_timer_alt_reset(where[at], &neighbours[at], 0, SINGLE, 0, count, NULL) == 0);
    CHECK(rte_timer_manage() == 0 && fired == 3 && rte_timer_next_ticks() == -ENOENT);
    CHECK(rte_timer_alt_manage(id, NULL, 0, beats) == 0 && seen == 2);

    /* The function of a late periodic timer is called once, whichever lists are served in which order, and whichever list the timer was in. */
    for (unsigned int list = 0; list < 8; list++) {
        seen = 0;
        CHECK(rte_timer_alt_reset(id, &wanderer, 1, PERIODICAL, list, NULL, NULL) == 0);
        uint64_t first = wanderer.expire;
        UNTIL(rte_get_timer_cycles() > first + 1000);
        for (int beat = 1; beat < 4; beat++) {
            if (list == 5 || list == 0 || list == 7 || beat > 1)
                CHECK(rte_timer_alt_manage(id, lists, 3, beats) == 0);
            else
                CHECK(rte_timer_alt_manage(id, &list, 1, beats) == 0);
            CHECK(seen == beat && wanderer.expire == first + (uint64_t)beat && wanderer.status.owner == 0);
        }
        CHECK(rte_timer_alt_stop(id, &wanderer) == 0);
    }

    /* stop_all stops the timers that are pending when it begins, not those that its function adds. */
    seen = 0;
    for (int at = 0; at < 4; at++)
        CHECK(rte_timer_alt_reset(id, &neighbours[at], FAR, SINGLE, 0, NULL, NULL) == 0);
    CHECK(rte_timer_stop_all(id, &lists[1], 1, stop_it_again, &id) == 0 && seen == 4);
    CHECK(rte_timer_pending(&neighbours[0]) == 1 && rte_timer_stop_all(id, &lists[1], 1, NULL, NULL) == 0 && rte_timer_pending(&neighbours[0]) == 0);

    /* Also if its function makes them due before others. */
    seen = 0;
    CHECK(rte_timer_alt_reset(id, &neighbours[1], FAR / 2, SINGLE, 0, NULL, NULL) == 0);
    CHECK(rte_timer_alt_reset(id, &neighbours[3], FAR, SINGLE, 0, NULL, NULL) == 0);
    CHECK(rte_timer_stop_all(id, &lists[1], 1, arm_earlier, &id) == 0 && seen == 2);
    CHECK(neighbours[3].expire < rte_get_timer_cycles() + FAR / 2 && rte_timer_pending(&neighbours[1]) == 1);
    CHECK(rte_timer_stop_all(id, &lists[1], 1, NULL, NULL) == 0 && rte_timer_pending(&neighbours[3]) == 0);

    /* The instance was freed, and another instance has its id. The timer is in no list. */
    CHECK(rte_timer_alt_reset(id, &wanderer, FAR, SINGLE, 0, NULL, NULL) == 0 && rte_timer_data_dealloc(id) == 0);
    uint32_t again = 0;
    CHECK(rte_timer_data_alloc(&again) == 0 && again == id);
    CHECK(rte_timer_alt_stop(again, &wanderer) == 0);
    CHECK(rte_timer_alt_reset(id, &wanderer, FAR, SINGLE, 0, NULL, NULL) == 0 && rte_timer_data_dealloc(id) == 0);
    CHECK(rte_timer_reset(&wanderer, 0, SINGLE, 0, count, NULL) == 0 && rte_timer_manage() == 0 && fired == 4);
}

static void instances(void)
{
    uint32_t id[64];
    CHECK(rte_timer_data_alloc(&id[0]) == 0 && id[0] != 0);
    struct rte_timer here = RTE_TIMER_INITIALIZER, there = RTE_TIMER_INITIALIZER, beat = RTE_TIMER_INITIALIZER;
    CHECK(rte_timer_alt_reset(id[0], &here, 0, SINGLE, 0, NULL, NULL) == 0);
    CHECK(rte_timer_alt_reset(id[0], &there, 0, SINGLE, 7, NULL, NULL) == 0);
    CHECK(rte_timer_alt_reset(id[0], &beat, 1, PERIODICAL, 7, NULL, NULL) == 0);
    CHECK(rte_timer_manage() == 0 && rte_timer_next_ticks() == -ENOENT && seen == 0);
    CHECK(rte_timer_alt_manage(id[0], NULL, 0, see) == 0 && seen == 1);
    UNTIL(rte_get_timer_cycles() > beat.expire);
    unsigned int lists[2] = { 0, 7 };
    CHECK(rte_timer_alt_manage(id[0], lists, 2, see) == 0 && seen == 3);
    /* The periodic timer is in the list of the calling lcore now. */
    CHECK(rte_timer_pending(&beat) == 1 && beat.status.owner == 0);
    CHECK(rte_timer_alt_stop(id[0], &beat) == 0 && rte_timer_alt_manage(id[0], lists, 2, see) == 0 && seen == 3);
    CHECK(rte_timer_alt_manage(id[0], lists, 2, NULL) == -EINVAL && rte_timer_alt_manage(63, lists, 2, see) == -EINVAL);
    lists[1] = RTE_MAX_LCORE;
    CHECK(rte_timer_alt_manage(id[0], lists, 2, see) == -EINVAL && rte_timer_alt_reset(99, &here, 0, SINGLE, 0, NULL, NULL) == -EINVAL);
    CHECK(rte_timer_alt_stop(99, &here) == -EINVAL && rte_timer_stop_all(99, lists, 1, NULL, NULL) == -EINVAL);
    SAYS("no instance 99 of timer data: pass what rte_timer_data_alloc stored");

    seen = 0;
    lists[1] = 7;
    for (int number = 0; number < 100; number++) {
        struct rte_timer *timer = (struct rte_timer *)malloc(sizeof *timer);
        rte_timer_init(timer);
        CHECK(rte_timer_alt_reset(id[0], timer, (uint64_t)number * FAR / 128, SINGLE, number % 2 ? 7 : 0, NULL, NULL) == 0);
    }
    CHECK(rte_timer_stop_all(id[0], lists, 2, free_it, &seen) == 0 && seen == 100);
    CHECK(rte_timer_alt_reset(id[0], &here, 0, SINGLE, 7, NULL, NULL) == 0);
    CHECK(rte_timer_stop_all(id[0], lists, 2, NULL, NULL) == 0 && rte_timer_pending(&here) == 0);

    int more = 1;
    while (rte_timer_data_alloc(&id[more]) == 0)
        more++;
    CHECK(more == 63 && rte_timer_data_alloc(&id[0]) == -ENOSPC);
    SAYS("64 instances of timer data: free one by rte_timer_data_dealloc");
    CHECK(rte_timer_data_alloc(NULL) == -EINVAL);
    while (more-- > 0)
        CHECK(rte_timer_data_dealloc(id[more]) == 0 && rte_timer_data_dealloc(id[more]) == -EINVAL);
}

static void statistics(void)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    struct rte_timer timer = RTE_TIMER_INITIALIZER;
    CHECK(rte_timer_reset(&timer, FAR, SINGLE, 3, count, NULL) == 0);
    CHECK(rte_timer_dump_stats(file) == 0 && rte_timer_dump_stats(NULL) == -EINVAL && fclose(file) == 0);
    CHECK(strstr(text, "pending = 1\n") != NULL && strstr(text, "reset = ") != NULL && strstr(text, "reset = 0\n") == NULL);
    CHECK(rte_timer_stop(&timer) == 0);
    free(text);
}

#ifndef STILL_RTE_DPDK
static int taken;

static void *take_a_number(void *unused)
{
    (void)unused;
    CHECK(still_rte_lcore_set(RTE_MAX_LCORE) == -EINVAL && still_rte_lcore_set(9) == 0);
    STORE(taken, 1);
    UNTIL(!LOAD(taken));
    return NULL;
}

/* LCORE_ID_ANY chooses each lcore in its turn. */
static void in_turn(void)
{
    struct rte_timer timer = RTE_TIMER_INITIALIZER;
    pthread_t thread = started(take_a_number, NULL);
    UNTIL(LOAD(taken));
    /* A child has the lcore of its thread only. */
    pid_t child = fork();
    if (child == 0)
        _exit(still_rte_lcore_next(0) == 0 ? 0 : 1);
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(rte_timer_reset(&timer, FAR, SINGLE, LCORE_ID_ANY, count, NULL) == 0 && timer.status.owner == 9);
    CHECK(rte_timer_reset(&timer, FAR, SINGLE, LCORE_ID_ANY, count, NULL) == 0 && timer.status.owner == 0);
    CHECK(rte_timer_reset(&timer, FAR, SINGLE, LCORE_ID_ANY, count, NULL) == 0 && timer.status.owner == 9);
    STORE(taken, 0);
    joined(thread);
    CHECK(rte_timer_reset(&timer, FAR, SINGLE, LCORE_ID_ANY, count, NULL) == 0 && timer.status.owner == 0);
    CHECK(rte_timer_reset(&timer, FAR, SINGLE, LCORE_ID_ANY, count, NULL) == 0 && timer.status.owner == 0);
    CHECK(rte_timer_stop(&timer) == 0);
}
#endif

/* Several lcores reset and stop each other's timers, and overwrite stopped timers. */
enum { LCORES = 4, TIMERS = 60, STEPS = 30000 };

static struct {
    struct rte_timer timer;
    pthread_mutex_t lock; /* held by threads that arm or stop the timer, and by its function */
    int is_armed;
} storm[TIMERS];

static uint64_t calls, stops;

/* Whether a timer was stopped or reset, which another thread may prevent. */
static int was_done(int answer)
{
    CHECK(answer == 0 || answer == -1);
    return answer == 0;
}

static void wipe(int at)
{
    STORE(storm[at].is_armed, 0);
    memset((void *)&storm[at].timer, 0xaa, sizeof storm[at].timer);
    rte_timer_init(&storm[at].timer);
    COUNT(stops);
}

static void storming(struct rte_timer *timer, void *argument)
{
    int at = (int)(intptr_t)argument;
    CHECK(timer == &storm[at].timer && LOAD(storm[at].is_armed) == 1);
    uint64_t call = COUNT(calls);
    if (call % 4 != 0 && pthread_mutex_trylock(&storm[at].lock) == 0) {
        if (call % 4 == 1) {
            CHECK(rte_timer_stop(timer) == 0);
            wipe(at);
        } else {
            CHECK(rte_timer_reset(timer, call % 3000, SINGLE, (unsigned int)(call % LCORES), storming, argument) == 0);
        }
        CHECK(pthread_mutex_unlock(&storm[at].lock) == 0);
    }
}

static void *storm_it(void *argument)
{
    unsigned int lcore = *(unsigned int *)argument;
    uint64_t random = lcore + 1;
    lcore_is(lcore);
    for (int step = 0; step < STEPS; step++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        int at = (int)((random >> 33) % TIMERS);
        if (pthread_mutex_trylock(&storm[at].lock) == 0) {
            if ((random >> 60) % 4 == 0) {
                if (was_done(rte_timer_stop(&storm[at].timer)))
                    wipe(at);
            } else {
                STORE(storm[at].is_armed, 1);
                (void)was_done(rte_timer_reset(&storm[at].timer, (random >> 20) % 5000, (random >> 59) % 2 ? SINGLE : PERIODICAL,
                                               (unsigned int)(random >> 50) % LCORES, storming, (void *)(intptr_t)at));
            }
            CHECK(pthread_mutex_unlock(&storm[at].lock) == 0);
        }
        if (step % 8 == 0)
            CHECK(rte_timer_manage() == 0);
    }
    return NULL;
}

static void storms(void)
{
    unsigned int numbers[LCORES];
    pthread_t threads[LCORES];
    for (int at = 0; at < TIMERS; at++) {
        rte_timer_init(&storm[at].timer);
        CHECK(pthread_mutex_init(&storm[at].lock, NULL) == 0);
    }
    for (unsigned int lcore = 0; lcore < LCORES; lcore++) {
        numbers[lcore] = lcore;
        threads[lcore] = started(storm_it, &numbers[lcore]);
    }
    for (int lcore = 0; lcore < LCORES; lcore++)
        joined(threads[lcore]);
    CHECK(calls > 1000 && stops > 1000);
    for (int at = 0; at < TIMERS; at++)
        CHECK(rte_timer_stop(&storm[at].timer) == 0);
    for (unsigned int lcore = 0; lcore < LCORES; lcore++) {
        lcore_is(lcore);
        CHECK(rte_timer_next_ticks() == -ENOENT);
    }
}

/* Several threads stop and reset the same few timers at once, in two instances, while each manages its lists. Who has a timer's lock for
 * writing frees the timer once it is stopped; those who manage have no lock. */
enum { KNOTS = 5 };

static struct {
    struct rte_timer *timer;
    pthread_rwlock_t lock;
    int is_armed;
} knots[KNOTS];

/* Which timer it was, for each reset. Plain, so that ThreadSanitizer sees whether the call of the function comes after it. */
static int notes[LCORES][STEPS];

static uint32_t second;
static unsigned int all_lcores[LCORES];
static uint64_t knot_calls, knot_frees;

static void try_to_free(int at)
{
    struct rte_timer *timer = knots[at].timer;
    if (was_done(rte_timer_stop(timer))) {
        STORE(knots[at].is_armed, 0);
        memset((void *)timer, 0xaa, sizeof *timer);
        free(timer);
        knots[at].timer = (struct rte_timer *)malloc(sizeof *timer);
        rte_timer_init(knots[at].timer);
        COUNT(knot_frees);
    }
}

static void knotted(struct rte_timer *timer, void *argument)
{
    int at = *(int *)argument;
    CHECK(timer->status.state == RTE_TIMER_RUNNING && LOAD(knots[at].is_armed) == 1);
    uint64_t call = COUNT(knot_calls);
    if (call % 4 == 1 && pthread_rwlock_tryrdlock(&knots[at].lock) == 0) {
        CHECK(rte_timer_alt_reset(second, timer, call % 3000, SINGLE, (unsigned int)(call % LCORES), knotted, argument) == 0);
        CHECK(pthread_rwlock_unlock(&knots[at].lock) == 0);
    } else if (call % 4 == 2 && pthread_rwlock_trywrlock(&knots[at].lock) == 0) {
        CHECK(knots[at].timer == timer);
        try_to_free(at);
        CHECK(pthread_rwlock_unlock(&knots[at].lock) == 0);
    }
}

static void knotted_alt(struct rte_timer *timer)
{
    knotted(timer, timer->arg);
}

static void *tangle(void *argument)
{
    unsigned int lcore = *(unsigned int *)argument;
    uint64_t random = lcore + 1;
    lcore_is(lcore);
    for (int step = 0; step < STEPS; step++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        int at = (int)((random >> 33) % KNOTS);
        uint32_t instance = (random >> 40) % 2 ? 0 : second;
        unsigned int what = (unsigned int)(random >> 57) % 16;
        if (what == 0) {
            if (pthread_rwlock_trywrlock(&knots[at].lock) == 0) {
                try_to_free(at);
                CHECK(pthread_rwlock_unlock(&knots[at].lock) == 0);
            }
        } else if (pthread_rwlock_tryrdlock(&knots[at].lock) == 0) {
            if (what < 6) {
                (void)was_done(rte_timer_alt_stop(instance, knots[at].timer));
            } else {
                STORE(knots[at].is_armed, 1);
                notes[lcore][step] = at;
                (void)was_done(rte_timer_alt_reset(instance, knots[at].timer, (random >> 20) % 4000, what < 8 ? PERIODICAL : SINGLE,
                                                   (unsigned int)(random >> 50) % LCORES, knotted, &notes[lcore][step]));
            }
            CHECK(pthread_rwlock_unlock(&knots[at].lock) == 0);
        }
        if (step % 8 == 0)
            CHECK(rte_timer_manage() == 0 && rte_timer_alt_manage(second, NULL, 0, knotted_alt) == 0);
        if (step % 512 == 0)
            CHECK(rte_timer_stop_all(step % 1024 ? 0 : second, all_lcores, LCORES, NULL, NULL) == 0);
    }
    return NULL;
}

static void no_list_has_a_timer(uint32_t instance)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    CHECK(rte_timer_alt_dump_stats(instance, file) == 0 && fclose(file) == 0 && strstr(text, "pending = 0\n") != NULL);
    free(text);
}

static void tangles(void)
{
    pthread_t threads[LCORES];
    CHECK(rte_timer_data_alloc(&second) == 0);
    for (int at = 0; at < KNOTS; at++) {
        knots[at].timer = (struct rte_timer *)malloc(sizeof *knots[at].timer);
        rte_timer_init(knots[at].timer);
        CHECK(pthread_rwlock_init(&knots[at].lock, NULL) == 0);
    }
    for (unsigned int lcore = 0; lcore < LCORES; lcore++)
        all_lcores[lcore] = lcore;
    for (unsigned int lcore = 0; lcore < LCORES; lcore++)
        threads[lcore] = started(tangle, &all_lcores[lcore]);
    for (int lcore = 0; lcore < LCORES; lcore++)
        joined(threads[lcore]);
    CHECK(knot_calls > 1000 && knot_frees > 1000);
    for (int at = 0; at < KNOTS; at++) {
        CHECK(rte_timer_stop(knots[at].timer) == 0);
        free(knots[at].timer);
    }
    no_list_has_a_timer(0);
    no_list_has_a_timer(second);
    CHECK(rte_timer_data_dealloc(second) == 0);
}

/* The instance of pending timers was freed: of several threads that reset such a timer at once, one has it at a time. */
enum { ORPHANS = 500 };

static struct rte_timer orphans[ORPHANS];
static unsigned int taken_part;

static void *adopt(void *argument)
{
    unsigned int lcore = *(unsigned int *)argument;
    COUNT(taken_part);
    UNTIL(LOAD(taken_part) == LCORES);
    for (int at = 0; at < ORPHANS; at++)
        (void)was_done(rte_timer_reset(&orphans[at], FAR, SINGLE, lcore, count, NULL));
    return NULL;
}

static void adoptions(void)
{
    for (int round = 0; round < 20; round++) {
        pthread_t threads[LCORES];
        CHECK(rte_timer_data_alloc(&second) == 0);
        for (int at = 0; at < ORPHANS; at++) {
            rte_timer_init(&orphans[at]);
            CHECK(rte_timer_alt_reset(second, &orphans[at], FAR, SINGLE, 0, count, NULL) == 0);
        }
        CHECK(rte_timer_data_dealloc(second) == 0);
        taken_part = 0;
        for (unsigned int lcore = 0; lcore < LCORES; lcore++)
            threads[lcore] = started(adopt, &all_lcores[lcore]);
        for (int lcore = 0; lcore < LCORES; lcore++)
            joined(threads[lcore]);
        for (int at = 0; at < ORPHANS; at++)
            CHECK(rte_timer_pending(&orphans[at]) == 1 && rte_timer_stop(&orphans[at]) == 0);
        no_list_has_a_timer(0);
    }
}

int main(void)
{
    lcore_is(0);
    not_yet();
    CHECK(rte_timer_subsystem_init() == 0 && rte_timer_subsystem_init() == -EALREADY);
    once();
    in_functions();
    within();
    periodic();
    crowds();
    counters_that_differ();
    elsewhere();
    threads_that_are_none();
    instances();
    freed_by_a_callback();
    several_instances();
    statistics();
#ifndef STILL_RTE_DPDK
    in_turn();
#endif
    storms();
    tangles();
    adoptions();
    rte_timer_subsystem_finalize();
    lcore_is(0);
    not_yet();
    CHECK(rte_timer_subsystem_init() == 0);
    once();
    rte_timer_subsystem_finalize();
    return 0;
}
