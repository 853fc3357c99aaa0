/* Timers with functions, of one thread and of others. */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stillpoint/htimer.h"

static int fired;
static struct still_htimer *last;

static void fire(struct still_htimer *timer, void *argument) STILL_NOEXCEPT
{
    (void)argument;
    fired++;
    last = timer;
}

static void fire_and_add(struct still_htimer *timer, void *argument) STILL_NOEXCEPT
{
    fire(timer, argument);
    CHECK(still_htimer_state(timer) == STILL_HTIMER_EXPIRED);
    REFUSED(still_htimer_manage_time(0, 0), -EBUSY, "may not call");
    REFUSED(still_htimer_process(), -EBUSY, "may not call");
    REFUSED(still_htimer_stop(), -EBUSY, "may not call");
    /* Already due: in the next manage, and not in this one. */
    CHECK(still_htimer_add(timer, 0, 0, fire, NULL, STILL_HTIMER_ABSOLUTE) == 0);
}

static void fire_and_free(struct still_htimer *timer, void *argument) STILL_NOEXCEPT
{
    fire(timer, argument);
    free(timer);
}

static void fire_and_cancel(struct still_htimer *timer, void *argument) STILL_NOEXCEPT
{
    fire(timer, argument);
    CHECK(still_htimer_cancel((struct still_htimer *)argument) == STILL_HTIMER_CANCELLED);
}

/* Told of a cancellation. */
static void stops_and_adds(struct still_htimer *timer, void *argument) STILL_NOEXCEPT
{
    fire(timer, argument);
    REFUSED(still_htimer_manage_time(0, 0), -EBUSY, "may not call");
    REFUSED(still_htimer_stop(), -EBUSY, "may not call");
    CHECK(still_htimer_state(timer) == STILL_HTIMER_CANCELLED);
    int answer = still_htimer_add(timer, 5, 0, stops_and_adds, NULL, STILL_HTIMER_TELL_CANCEL);
    CHECK(fired <= 2 ? answer == 0 : answer == -EPIPE);
    if (fired == 3)
        REFUSED(still_htimer_async_add(still_htimer_mgr_self(), timer, 5, 0, fire, NULL, 0, NULL, NULL), -EPIPE, "stopping");
}

static void begin(uint64_t tick, uint64_t at, size_t burst)
{
    struct still_htimer_options options = STILL_HTIMER_OPTIONS_INIT;
    options.tick = tick;
    options.no_clock = 1;
    options.begin = at;
    options.burst = burst;
    CHECK(still_htimer_start(&options) == 0);
    fired = 0;
}

static void refusals(void)
{
    struct still_htimer timer = STILL_HTIMER_INIT;
    REFUSED(still_htimer_add(&timer, 1, 0, fire, NULL, 0), -ESRCH, "still_htimer_start");
    REFUSED(still_htimer_cancel(&timer), -ESRCH, "still_htimer_start");
    REFUSED(still_htimer_manage(), -ESRCH, "still_htimer_start");
    REFUSED(still_htimer_process(), -ESRCH, "still_htimer_start");
    REFUSED(still_htimer_stop(), -ESRCH, "still_htimer_start");
    CHECK(still_htimer_mgr_self() == NULL && errno == ESRCH);
    CHECK(still_htimer_mgr_of_lcore(7) == NULL && errno == ESRCH);

    struct still_htimer_options options = STILL_HTIMER_OPTIONS_INIT;
    options.tick = 1000;
    REFUSED(still_htimer_start(&options), -EINVAL, "1000 ns is not a power of two");
    options.tick = 0;
    options.requests = SIZE_MAX;
    REFUSED(still_htimer_start(&options), -EINVAL, "at most 1048576");
    options.requests = 0;
    options.tick = 1024;
    options.no_clock = 1;
    options.begin = UINT64_MAX;
    REFUSED(still_htimer_start(&options), -EINVAL, "end of time");
    options.size = 0;
    REFUSED(still_htimer_start(&options), -EINVAL, "has size 0");

    begin(1, 1000, 0);
    REFUSED(still_htimer_start(NULL), -EALREADY, "already");
    REFUSED(still_htimer_add(NULL, 1, 0, fire, NULL, 0), -EINVAL, "NULL was passed for a timer");
    REFUSED(still_htimer_add(&timer, 1, 0, NULL, NULL, 0), -EINVAL, "function of a timer");
    REFUSED(still_htimer_add(&timer, 1, 0, fire, NULL, 32), -EINVAL, "flag");
    REFUSED(still_htimer_add(&timer, 1, 0, fire, NULL, STILL_HTIMER_PERIODICAL), -EINVAL, "period of 0");
    REFUSED(still_htimer_add(&timer, 1, 0, fire, NULL, STILL_HTIMER_TSC), -EOPNOTSUPP, "counter");
    REFUSED(still_htimer_manage(), -EOPNOTSUPP, "still_htimer_manage_time");
    REFUSED(still_htimer_async_cancel(&timer, NULL, NULL), -ENOENT, "never added");
    REFUSED(still_htimer_async_add(NULL, &timer, 1, 0, fire, NULL, 0, NULL, NULL), -EINVAL, "NULL was passed for a manager");
    struct still_htimer_mgr *wrong = (struct still_htimer_mgr *)(void *)&timer;
    REFUSED(still_htimer_async_add(wrong, &timer, 1, 0, fire, NULL, 0, NULL, NULL), -EINVAL, "no manager of timers");
    wrong = (struct still_htimer_mgr *)(void *)((char *)still_htimer_mgr_self() + 1);
    REFUSED(still_htimer_async_add(wrong, &timer, 1, 0, fire, NULL, 0, NULL, NULL), -EINVAL, "no manager of timers");
    REFUSED(still_htimer_add(&timer, 1, 0, fire, NULL, STILL_HTIMER_TSC | STILL_HTIMER_TICKS), -EINVAL, "not in both");
    uint64_t time = 0;
    CHECK(still_htimer_time(STILL_HTIMER_ABSOLUTE) == 0 && errno == EINVAL);
    REFUSED(still_htimer_next(&time, STILL_HTIMER_TSC), -EINVAL, "flags of this call");
    REFUSED(still_htimer_next(NULL, 0), -EINVAL, "NULL");
    REFUSED(still_htimer_manage_time(0, STILL_HTIMER_ABSOLUTE), -EINVAL, "flags of this call");
    REFUSED(still_htimer_manage_time(0, STILL_HTIMER_TICKS | STILL_HTIMER_TSC), -EINVAL, "flags of this call");
    REFUSED(still_htimer_manage_time(0, STILL_HTIMER_TSC), -EOPNOTSUPP, "counter");
    CHECK(still_htimer_mgr_of_lcore(UINT32_MAX) == NULL && still_htimer_mgr_of_lcore(0) == NULL);
    CHECK(still_htimer_state(&timer) == STILL_HTIMER_IDLE);
    CHECK(still_htimer_cancel(&timer) == STILL_HTIMER_ALREADY_CANCELLED);
    CHECK(still_htimer_stop() == 0);
}

static void one_thread(void)
{
    begin(1, 1000, 0);
    uint64_t next = 0;
    CHECK(still_htimer_next(&next, 0) == 0 && still_htimer_time(0) == 1000);

    struct still_htimer relative = STILL_HTIMER_INIT, absolute = STILL_HTIMER_INIT, beat = STILL_HTIMER_INIT;
    CHECK(still_htimer_add(&relative, 50, 0, fire, NULL, 0) == 0);
    CHECK(still_htimer_add(&absolute, 1010, 0, fire, NULL, STILL_HTIMER_ABSOLUTE) == 0);
    CHECK(still_htimer_add(&beat, 10, 20, fire, NULL, STILL_HTIMER_PERIODICAL) == 0);
    REFUSED(still_htimer_add(&beat, 10, 20, fire, NULL, 0), -EBUSY, "is pending");
    CHECK(still_htimer_state(&beat) == STILL_HTIMER_ADDED);
    CHECK(still_htimer_next(&next, 0) == 1 && next > 1000 && next <= 1010);
    CHECK(still_htimer_manage_time(1009, 0) == 0 && fired == 0);
    CHECK(still_htimer_manage_time(1010, 0) == 2 && fired == 2);
    CHECK(still_htimer_state(&absolute) == STILL_HTIMER_EXPIRED && still_htimer_state(&beat) == STILL_HTIMER_ADDED);
    CHECK(still_htimer_cancel(&absolute) == STILL_HTIMER_EXPIRED);
    CHECK(still_htimer_manage_time(1000, 0) == 0 && still_htimer_time(0) == 1010); /* it does not go back */
    CHECK(still_htimer_manage_time(1030, 0) == 1 && last == &beat);
    /* 1050 and 1070 are missed, or told as one; the next beat is at 1090, since beats do not drift. */
    CHECK(still_htimer_manage_time(1075, 0) == 2 && fired == 5 && still_htimer_state(&relative) == STILL_HTIMER_EXPIRED);
    CHECK(still_htimer_manage_time(1089, 0) == 0 && still_htimer_manage_time(1090, 0) == 1);
    CHECK(still_htimer_cancel(&beat) == STILL_HTIMER_CANCELLED);
    CHECK(still_htimer_cancel(&beat) == STILL_HTIMER_ALREADY_CANCELLED);
    CHECK(still_htimer_manage_time(2000, 0) == 0);

    /* What functions may do. */
    fired = 0;
    struct still_htimer again = STILL_HTIMER_INIT, victim = STILL_HTIMER_INIT;
    CHECK(still_htimer_add(&again, 1, 0, fire_and_add, NULL, 0) == 0);
    CHECK(still_htimer_manage_time(2001, 0) == 1 && still_htimer_manage_time(2001, 0) == 1 && fired == 2);
    struct still_htimer *freed = (struct still_htimer *)calloc(1, sizeof *freed);
    CHECK(freed != NULL && still_htimer_add(freed, 1, 0, fire_and_free, NULL, 0) == 0);
    CHECK(still_htimer_manage_time(2002, 0) == 1);
    /* Cancels a timer that is due in the same call. */
    CHECK(still_htimer_add(&again, 1, 0, fire_and_cancel, &victim, 0) == 0);
    CHECK(still_htimer_add(&victim, 2, 0, fire, NULL, 0) == 0);
    fired = 0;
    CHECK(still_htimer_manage_time(3000, 0) == 1 && fired == 1);
    CHECK(still_htimer_state(&victim) == STILL_HTIMER_CANCELLED);

    /* The function is told of a cancellation, if the program wants that. */
    fired = 0;
    CHECK(still_htimer_add(&victim, 2, 0, fire, NULL, STILL_HTIMER_TELL_CANCEL) == 0);
    CHECK(still_htimer_cancel(&victim) == STILL_HTIMER_CANCELLED && fired == 1 && last == &victim);
    freed = (struct still_htimer *)calloc(1, sizeof *freed);
    CHECK(freed != NULL && still_htimer_add(freed, 5, 0, fire_and_free, NULL, STILL_HTIMER_TELL_CANCEL) == 0);
    CHECK(still_htimer_add(&victim, UINT64_MAX, 0, fire, NULL, 0) == 0);
    CHECK(still_htimer_stop() == 2 && fired == 2 && still_htimer_state(&victim) == STILL_HTIMER_CANCELLED);

    /* What a function may not do while the manager stops, and while a cancellation is told. */
    begin(1, 0, 0);
    memset(&victim, 0, sizeof victim);
    CHECK(still_htimer_add(&victim, 5, 0, stops_and_adds, NULL, STILL_HTIMER_TELL_CANCEL) == 0);
    CHECK(still_htimer_cancel(&victim) == STILL_HTIMER_CANCELLED && fired == 1);
    CHECK(still_htimer_cancel(&victim) == STILL_HTIMER_CANCELLED && fired == 2); /* it was added again */
    CHECK(still_htimer_stop() == 1 && fired == 3 && still_htimer_state(&victim) == STILL_HTIMER_CANCELLED);

    /* The whole of time. */
    begin(0, UINT64_MAX - 10, 0);
    CHECK(still_htimer_add(&victim, 100, 0, fire, NULL, 0) == 0);
    CHECK(still_htimer_add(&again, UINT64_MAX - 1, 3, fire, NULL, STILL_HTIMER_ABSOLUTE | STILL_HTIMER_PERIODICAL) == 0);
    CHECK(still_htimer_manage_time(UINT64_MAX - 2, 0) == 0 && still_htimer_manage_time(UINT64_MAX - 1, 0) == 1);
    CHECK(still_htimer_stop() == 2);

    /* A burst. */
    begin(1, 0, 3);
    static struct still_htimer many[10];
    for (int i = 0; i < 10; i++)
        CHECK(still_htimer_add(&many[i], 5, 0, fire, NULL, 0) == 0);
    for (ssize_t wanted = 3, left = 10; left > 0; left -= wanted)
        CHECK(still_htimer_manage_time(5, 0) == (left < wanted ? left : wanted));
    CHECK(fired == 10 && still_htimer_manage_time(6, 0) == 0 && still_htimer_stop() == 0);

    /* A timer that is due, in a slot of the wheel with more than one step moves that are not. */
    begin(1, 0, 0);
    static struct still_htimer later[200];
    for (int i = 0; i < 200; i++)
        CHECK(still_htimer_add(&later[i], 95, 0, fire, NULL, 0) == 0);
    memset(&again, 0, sizeof again);
    CHECK(still_htimer_add(&again, 64, 0, fire, NULL, 0) == 0);
    CHECK(still_htimer_manage_time(64, 0) == 1 && still_htimer_manage_time(94, 0) == 0);
    CHECK(still_htimer_manage_time(95, 0) == 200 && still_htimer_stop() == 0);
}

/* A thread that manages when still_htimer_next says so, and no more often, expires all timers, in a few calls for each. */
static void sleeper(void)
{
    begin(1024, 0, 0);
    static struct still_htimer timers[5];
    memset(timers, 0, sizeof timers);
    uint64_t delay = 70;
    for (int i = 0; i < 5; i++, delay *= 97)
        CHECK(still_htimer_add(&timers[i], delay, i == 1 ? delay : 0, fire, NULL, STILL_HTIMER_TICKS | (i == 1 ? STILL_HTIMER_PERIODICAL : 0)) == 0);
    uint64_t next = 0, before = 0;
    int calls = 0;
    while (fired < 40) {
        CHECK(still_htimer_next(&next, STILL_HTIMER_TICKS) == 1 && (next > before || calls == 0));
        CHECK(still_htimer_manage_time(next, STILL_HTIMER_TICKS) >= 0);
        before = next;
        calls++;
    }
    CHECK(calls < 40 * 12 && still_htimer_state(&timers[0]) == STILL_HTIMER_EXPIRED);
    CHECK(still_htimer_stop() == 4);
}

/* No timer is early, in any unit. */
static void units(void)
{
    begin(1024, 10, 0);
    CHECK(still_htimer_time(0) == 10240 && still_htimer_time(STILL_HTIMER_TICKS) == 10);
    struct still_htimer timer = STILL_HTIMER_INIT;
    static const struct {
        uint64_t time;
        uint32_t flags;
        uint64_t due; /* in ticks */
    } cases[] = {
        { 3, STILL_HTIMER_TICKS, 1003 },
        { 1013, STILL_HTIMER_TICKS | STILL_HTIMER_ABSOLUTE, 1013 },
        { 1024, 0, 1001 },
        { 1025, 0, 1002 },
        { 1, 0, 1001 },
        { 1024 * 1005, STILL_HTIMER_ABSOLUTE, 1005 },
        { 1024 * 1005 + 1, STILL_HTIMER_ABSOLUTE, 1006 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t now = 1000 + i * 100000;
        uint64_t later = i * 100000;
        uint64_t time = cases[i].time;
        if (cases[i].flags & STILL_HTIMER_ABSOLUTE)
            time += cases[i].flags & STILL_HTIMER_TICKS ? later : later * 1024;
        CHECK(still_htimer_manage_time(now, STILL_HTIMER_TICKS) == 0);
        CHECK(still_htimer_add(&timer, time, 0, fire, NULL, cases[i].flags) == 0);
        uint64_t next = 0;
        CHECK(still_htimer_next(&next, STILL_HTIMER_TICKS) == 1 && next <= cases[i].due + later);
        CHECK(still_htimer_manage_time(cases[i].due + later - 1, STILL_HTIMER_TICKS) == 0);
        CHECK(still_htimer_manage_time((cases[i].due + later) * 1024, 0) == 1);
    }
    /* A delay in ticks begins when the tick that has begun is over. */
    uint64_t half = still_htimer_time(STILL_HTIMER_TICKS) * 1024 + 512;
    CHECK(still_htimer_manage_time(half, 0) == 0);
    CHECK(still_htimer_add(&timer, 1, 0, fire, NULL, STILL_HTIMER_TICKS) == 0);
    CHECK(still_htimer_manage_time(half + 1024, 0) == 0 && still_htimer_manage_time(half + 1536, 0) == 1);
    /* A period in nanoseconds is rounded up to ticks. */
    CHECK(still_htimer_add(&timer, 1, 1, fire, NULL, STILL_HTIMER_PERIODICAL) == 0);
    uint64_t now = still_htimer_time(STILL_HTIMER_TICKS);
    for (uint64_t tick = now + 1; tick < now + 10; tick++)
        CHECK(still_htimer_manage_time(tick, STILL_HTIMER_TICKS) == 1);
    CHECK(still_htimer_stop() == 1);

    /* With a clock: the system's, and the processor's counter. */
    CHECK(still_htimer_start(NULL) == 0);
    struct timespec at;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &at) == 0);
    uint64_t start = (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
    memset(&timer, 0, sizeof timer);
    fired = 0;
    CHECK(still_htimer_manage() == 0);
    CHECK(still_htimer_add(&timer, start + 2000000, 0, fire, NULL, STILL_HTIMER_ABSOLUTE) == 0);
    while (fired == 0)
        CHECK(still_htimer_manage() >= 0);
    CHECK(clock_gettime(CLOCK_MONOTONIC, &at) == 0);
    uint64_t end = (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
    CHECK(end >= start + 1990000); /* the clock is calibrated to some millionths */
#if defined(__x86_64__)
    int answer = still_htimer_add(&timer, 100000, 0, fire, NULL, STILL_HTIMER_TSC);
    if (answer == -EOPNOTSUPP) {
        CHECK(strstr(still_error(), "counter") != NULL);
    } else {
        uint64_t before = __builtin_ia32_rdtsc();
        CHECK(answer == 0);
        while (fired == 1)
            CHECK(still_htimer_manage() >= 0);
        /* A delay counts from the last manage, which was before. */
        CHECK(still_htimer_manage() == 0);
        before = __builtin_ia32_rdtsc();
        CHECK(still_htimer_add(&timer, before + 300000, 0, fire, NULL, STILL_HTIMER_TSC | STILL_HTIMER_ABSOLUTE) == 0);
        while (fired == 2)
            CHECK(still_htimer_manage_time(__builtin_ia32_rdtsc(), STILL_HTIMER_TSC) >= 0);
        CHECK(__builtin_ia32_rdtsc() - before >= 300000);
    }
#endif
    CHECK(still_htimer_stop() == 0);
}

/* ------------------------------------------------------------------------------------------------------------------
 * Other threads
 */

struct owner {
    pthread_t thread;
    struct still_htimer_mgr *manager;
    int is_ready, must_stop, fired, is_slow;
};

static int is_set(int *flag)
{
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static void set(int *flag)
{
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

static void fire_there(struct still_htimer *timer, void *argument) STILL_NOEXCEPT
{
    (void)timer;
    __atomic_add_fetch(&((struct owner *)argument)->fired, 1, __ATOMIC_ACQ_REL);
}

static void *own(void *argument)
{
    struct owner *owner = (struct owner *)argument;
    struct still_htimer_options options = STILL_HTIMER_OPTIONS_INIT;
    options.tick = 1;
    options.no_clock = 1;
    options.requests = 16;
    CHECK(still_htimer_start(&options) == 0);
    owner->manager = still_htimer_mgr_self();
    set(&owner->is_ready);
    for (uint64_t now = 1; !is_set(&owner->must_stop); now++) {
        if (!is_set(&owner->is_slow))
            CHECK(still_htimer_manage_time(now, 0) >= 0);
        (void)sched_yield();
    }
    return NULL; /* the end of the thread stops the manager */
}

static void start(struct owner *owner)
{
    memset(owner, 0, sizeof *owner);
    CHECK(pthread_create(&owner->thread, NULL, own, owner) == 0);
    while (!is_set(&owner->is_ready))
        (void)sched_yield();
}

static void end(struct owner *owner)
{
    set(&owner->must_stop);
    CHECK(pthread_join(owner->thread, NULL) == 0);
}

static int results[8];

static void tell(struct still_htimer *timer, int result, void *argument) STILL_NOEXCEPT
{
    CHECK(timer != NULL && (argument == NULL || argument == timer));
    results[result]++;
}

static int told(void)
{
    int all = 0;
    for (int i = 0; i < 8; i++)
        all += results[i];
    return all;
}

static void await(int count)
{
    while (told() < count)
        if (still_htimer_process() == 0)
            (void)sched_yield();
}

static void other_thread(void)
{
    begin(1, 0, 0);
    struct owner owner;
    start(&owner);
    static struct still_htimer timers[300];
    memset(results, 0, sizeof results);
    /* Meanwhile it does not expire. */
    set(&owner.is_slow);
    CHECK(still_htimer_async_add(owner.manager, &timers[0], 3, 0, fire_there, &owner, 0, tell, &timers[0]) == 0);
    REFUSED(still_htimer_add(&timers[0], 3, 0, fire, NULL, 0), -EBUSY, "");
    __atomic_store_n(&owner.is_slow, 0, __ATOMIC_RELEASE);
    CHECK(still_htimer_async_add(owner.manager, &timers[1], UINT64_MAX, 0, fire_there, &owner, 0, tell, NULL) == 0);
    await(2);
    CHECK(results[STILL_HTIMER_ADDED] == 2);
    while (__atomic_load_n(&owner.fired, __ATOMIC_ACQUIRE) == 0)
        (void)sched_yield();
    CHECK(still_htimer_cancel(&timers[0]) == STILL_HTIMER_EXPIRED);
    REFUSED(still_htimer_cancel(&timers[1]), -EBUSY, "another thread's");
    CHECK(still_htimer_async_cancel(&timers[0], tell, NULL) == 0);
    CHECK(still_htimer_async_cancel(&timers[1], tell, NULL) == 0);
    CHECK(still_htimer_async_cancel(&timers[1], tell, NULL) == 0);
    await(5);
    CHECK(results[STILL_HTIMER_EXPIRED] == 1 && results[STILL_HTIMER_CANCELLED] == 1 &&
          results[STILL_HTIMER_ALREADY_CANCELLED] == 1);

    /* A cancellation overtakes nothing, and needs no result. */
    memset(results, 0, sizeof results);
    CHECK(still_htimer_async_add(owner.manager, &timers[1], UINT64_MAX, 0, fire_there, &owner, 0, NULL, NULL) == 0);
    CHECK(still_htimer_async_cancel(&timers[1], tell, NULL) == 0);
    await(1);
    CHECK(results[STILL_HTIMER_CANCELLED] == 1);

    /* Without a place for the result, the timer is the caller's. */
    memset(results, 0, sizeof results);
    set(&owner.is_slow);
    int sent = 0;
    while (still_htimer_async_add(owner.manager, &timers[sent], UINT64_MAX, 0, fire_there, &owner, 0, tell, NULL) == 0)
        sent++;
    CHECK(sent == 256);
    REFUSED(still_htimer_async_add(owner.manager, &timers[sent], 1, 0, fire, NULL, 0, NULL, NULL), -EAGAIN, "still_htimer_process");
    REFUSED(still_htimer_stop(), -EBUSY, "256 requests");
    CHECK(still_htimer_state(&timers[sent]) == STILL_HTIMER_IDLE);
    CHECK(still_htimer_add(&timers[sent], 1, 0, fire, NULL, 0) == 0);
    __atomic_store_n(&owner.is_slow, 0, __ATOMIC_RELEASE);
    await(256);

    /* Many at once: refused from the first that is in use, or has no place. */
    memset(results, 0, sizeof results);
    struct still_htimer_request requests[4];
    memset(requests, 0, sizeof requests);
    for (int i = 0; i < 4; i++) {
        requests[i].timer = &timers[sent + 1 + i];
        requests[i].time = UINT64_MAX;
        requests[i].function = fire_there;
        requests[i].argument = &owner;
        requests[i].result_function = tell;
    }
    requests[3].timer = &timers[sent + 2];
    CHECK(still_htimer_async_add_burst(owner.manager, requests, 0) == 0);
    CHECK(still_htimer_async_add_burst(owner.manager, requests, 4) == 3);
    REFUSED(still_htimer_async_add_burst(owner.manager, &requests[3], 1), -EBUSY, "");
    await(3);
    CHECK(results[STILL_HTIMER_ADDED] == 3);

    /* A thread that has ended. What it had is not touched; what comes later is refused, and a timer is the caller's again. */
    end(&owner);
    static struct still_htimer late;
    REFUSED(still_htimer_async_add(owner.manager, &late, 1, 0, fire, NULL, 0, tell, NULL), -EPIPE, "ended");
    REFUSED(still_htimer_async_cancel(&timers[0], tell, NULL), -EPIPE, "ended");
    CHECK(still_htimer_state(&late) == STILL_HTIMER_IDLE && still_htimer_add(&late, 1, 0, fire, NULL, 0) == 0);
    CHECK(still_htimer_stop() == 2 && fired == 0);

    /* Requests on their way to a thread that ends. */
    begin(1, 0, 0);
    start(&owner);
    set(&owner.is_slow);
    memset(timers, 0, sizeof timers);
    memset(results, 0, sizeof results);
    CHECK(still_htimer_async_add(owner.manager, &timers[0], 1, 0, fire, NULL, 0, tell, NULL) == 0);
    end(&owner);
    int gone = results[STILL_HTIMER_GONE] == 0;
    await(1);
    /* It may have managed once more before it saw that it is slow. */
    CHECK(gone && results[STILL_HTIMER_GONE] + results[STILL_HTIMER_ADDED] == 1);
    if (results[STILL_HTIMER_GONE] == 1) {
        CHECK(still_htimer_state(&timers[0]) == STILL_HTIMER_IDLE);
        CHECK(still_htimer_add(&timers[0], 1, 0, fire, NULL, 0) == 0);
    }

    /* To itself. */
    memset(results, 0, sizeof results);
    CHECK(still_htimer_async_add(still_htimer_mgr_self(), &timers[1], 2, 0, fire, NULL, 0, tell, NULL) == 0);
    REFUSED(still_htimer_cancel(&timers[1]), -EBUSY, "on its way");
    CHECK(still_htimer_process() == 2 && results[STILL_HTIMER_ADDED] == 1);
    CHECK(still_htimer_async_cancel(&timers[1], tell, NULL) == 0 && still_htimer_process() == 2);
    CHECK(results[STILL_HTIMER_CANCELLED] == 1 && still_htimer_process() == 0);
    CHECK(still_htimer_stop() >= 0);
}

/* A thread that ends while its requests are under way: no other thread gets its manager before they are back. */
static void *asks_and_ends(void *argument)
{
    struct owner *owner = (struct owner *)argument;
    static struct still_htimer timer, pending;
    struct still_htimer_options options = STILL_HTIMER_OPTIONS_INIT;
    options.requests = 32;
    options.no_clock = 1;
    CHECK(still_htimer_start(&options) == 0);
    memset(&pending, 0, sizeof pending);
    CHECK(still_htimer_add(&pending, UINT64_MAX, 0, fire, NULL, 0) == 0);
    if (owner != NULL)
        CHECK(still_htimer_async_add(owner->manager, &timer, UINT64_MAX, 0, fire_there, owner, 0, tell, NULL) == 0);
    return still_htimer_mgr_self();
}

static void heirs(void)
{
    struct owner owner;
    start(&owner);
    set(&owner.is_slow);
    memset(results, 0, sizeof results);
    pthread_t thread;
    void *former = NULL, *other = NULL;
    CHECK(pthread_create(&thread, NULL, asks_and_ends, &owner) == 0 && pthread_join(thread, &former) == 0);
    struct still_htimer_options options = STILL_HTIMER_OPTIONS_INIT;
    options.requests = 32;
    options.no_clock = 1;
    /* All places are there, in one manager or the other. */
    static struct still_htimer timers[33];
    CHECK(still_htimer_start(&options) == 0);
    int sent = 0;
    while (still_htimer_async_add(owner.manager, &timers[sent], UINT64_MAX, 0, fire_there, &owner, 0, tell, NULL) == 0)
        sent++;
    CHECK(sent == 32);
    __atomic_store_n(&owner.is_slow, 0, __ATOMIC_RELEASE);
    await(32);
    CHECK(still_htimer_stop() == 0 && told() == 32);

    /* A timer that was pending on a thread that has ended is nobody's, also when the manager is another thread's. */
    CHECK(pthread_create(&thread, NULL, asks_and_ends, NULL) == 0 && pthread_join(thread, &other) == 0);
    CHECK(still_htimer_start(&options) == 0);
    for (int i = 0; i < 33; i++)
        CHECK(still_htimer_state(&timers[i]) == (i < 32 ? STILL_HTIMER_ADDED : STILL_HTIMER_IDLE));
    REFUSED(still_htimer_cancel(&timers[0]), -EBUSY, "another thread's");
    end(&owner);
    REFUSED(still_htimer_async_cancel(&timers[0], tell, NULL), -EPIPE, "ended");
    start(&owner);
    REFUSED(still_htimer_async_cancel(&timers[0], tell, NULL), -EPIPE, "ended");
    end(&owner);
    CHECK(still_htimer_stop() == 0);
}

/* A function that gives its timer to another thread, or to its own, while its cancellation is on the way. */
static struct owner second;
static int at_gate, has_asked;

static void move(struct still_htimer *timer, void *argument) STILL_NOEXCEPT
{
    struct still_htimer_mgr *to = argument == NULL ? still_htimer_mgr_self() : second.manager;
    CHECK(still_htimer_async_add(to, timer, UINT64_MAX, 0, fire, NULL, 0, NULL, NULL) == 0);
}

/* Expires in the same call, before that timer: the cancellation comes too late for this call to take it in. */
static void gate(struct still_htimer *timer, void *argument) STILL_NOEXCEPT
{
    (void)timer;
    (void)argument;
    set(&at_gate);
    while (!is_set(&has_asked))
        (void)sched_yield();
}

static void *moves(void *argument)
{
    struct owner *owner = (struct owner *)argument;
    begin(1, 0, 0);
    static struct still_htimer timer;
    memset(&timer, 0, sizeof timer);
    CHECK(still_htimer_add(&timer, 1, 0, gate, NULL, 0) == 0);
    owner->manager = still_htimer_mgr_self();
    set(&owner->is_ready);
    while (still_htimer_process() == 0) /* the addition of the timer that moves */
        (void)sched_yield();
    CHECK(still_htimer_manage_time(5, 0) == 2);
    if (is_set(&owner->fired))
        return NULL; /* before it has taken the cancellation in */
    while (!is_set(&owner->must_stop)) {
        CHECK(still_htimer_process() >= 0);
        (void)sched_yield();
    }
    return NULL;
}

static void moved(void)
{
    begin(1, 0, 0);
    start(&second);
    /* To its own thread; to another one; to another one, and the thread ends. */
    for (int to = 0; to < 3; to++) {
        static struct owner first;
        memset(&first, 0, sizeof first);
        first.fired = to == 2;
        at_gate = has_asked = 0;
        memset(results, 0, sizeof results);
        CHECK(pthread_create(&first.thread, NULL, moves, &first) == 0);
        while (!is_set(&first.is_ready))
            (void)sched_yield();
        static struct still_htimer timer;
        memset(&timer, 0, sizeof timer);
        CHECK(still_htimer_async_add(first.manager, &timer, 2, 0, move, to == 0 ? NULL : &second, 0, tell, NULL) == 0);
        await(1);
        while (!is_set(&at_gate))
            (void)sched_yield();
        CHECK(still_htimer_async_cancel(&timer, tell, NULL) == 0);
        set(&has_asked);
        await(2);
        CHECK(results[STILL_HTIMER_CANCELLED] == 1 && still_htimer_state(&timer) == STILL_HTIMER_CANCELLED);
        end(&first);
    }
    end(&second);
    CHECK(still_htimer_stop() == 0);
}

/* In a function, the list that it walks cannot be reset. */
static void forks(struct still_htimer *timer, int result, void *argument) STILL_NOEXCEPT
{
    tell(timer, result, argument);
    REFUSED(still_htimer_reset_after_fork(), -EBUSY, "may not call");
}

/* The child of a fork has only its own manager, with all places. */
static void child(void)
{
    begin(1, 0, 0);
    struct owner owner;
    start(&owner);
    set(&owner.is_slow);
    static struct still_htimer away, mine, itself;
    memset(results, 0, sizeof results);
    fired = 0;
    CHECK(still_htimer_async_add(owner.manager, &away, UINT64_MAX, 0, fire_there, &owner, 0, tell, NULL) == 0);
    CHECK(still_htimer_async_add(still_htimer_mgr_self(), &itself, 1, 0, fire, NULL, 0, tell, NULL) == 0);
    CHECK(still_htimer_add(&mine, 5, 0, fire, NULL, 0) == 0);
    pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        CHECK(still_htimer_reset_after_fork() == 0);
        memset(&away, 0, sizeof away); /* the other thread's: at the fork, it may have been taking it in */
        REFUSED(still_htimer_async_add(owner.manager, &away, 1, 0, fire, NULL, 0, tell, NULL), -EPIPE, "ended");
        CHECK(still_htimer_state(&itself) == STILL_HTIMER_IDLE);
        CHECK(still_htimer_async_add(still_htimer_mgr_self(), &itself, 2, 0, fire, NULL, 0, forks, NULL) == 0);
        CHECK(still_htimer_process() == 2 && told() == 1);
        CHECK(still_htimer_manage_time(5, 0) == 2);
        CHECK(still_htimer_stop() == 0);
        _exit(0); /* the blocks of threads that are not there are no leaks */
    }
    int status = 0;
    CHECK(waitpid(process, &status, 0) == process && status == 0);
    __atomic_store_n(&owner.is_slow, 0, __ATOMIC_RELEASE);
    await(2);
    CHECK(still_htimer_manage_time(5, 0) == 2 && results[STILL_HTIMER_ADDED] == 2);
    end(&owner);
    CHECK(still_htimer_stop() == 0);
}

/* Threads that give each other timers, more than there are places for, and cancel them. Nobody hangs, and each timer ends once. */
enum { THREADS = 3, EACH = 64, ROUNDS = 40 };

struct peer;

struct given {
    struct still_htimer timer;
    struct peer *from;
    int expired;                /* written by its thread, read once the result is there */
    int added, ended, cancels;
};

struct peer {
    pthread_t thread;
    struct still_htimer_mgr *manager;
    struct given given[EACH];
    int open, expired, cancelled;
};

static struct peer peers[THREADS];
static int ready, finished;

static void expire(struct still_htimer *timer, void *argument) STILL_NOEXCEPT
{
    struct given *given = (struct given *)argument;
    CHECK(timer == &given->timer && given->expired == 0);
    given->expired = 1;
}

static void is_cancelled(struct still_htimer *timer, int result, void *argument) STILL_NOEXCEPT
{
    struct given *given = (struct given *)argument;
    CHECK(timer == &given->timer && given->added == 1 && given->ended == 0);
    given->ended = 1;
    given->from->open--;
    if (result == STILL_HTIMER_EXPIRED) {
        CHECK(given->expired == 1);
        given->from->expired++;
    } else {
        CHECK(result == STILL_HTIMER_CANCELLED && given->expired == 0);
        given->from->cancelled++;
    }
}

static void is_added(struct still_htimer *timer, int result, void *argument) STILL_NOEXCEPT
{
    struct given *given = (struct given *)argument;
    CHECK(timer == &given->timer && result == STILL_HTIMER_ADDED && given->added == 0);
    given->added = 1;
}

static void *work(void *argument)
{
    struct peer *me = (struct peer *)argument;
    struct still_htimer_options options = STILL_HTIMER_OPTIONS_INIT;
    options.tick = 1;
    options.no_clock = 1;
    options.requests = 16;
    CHECK(still_htimer_start(&options) == 0);
    me->manager = still_htimer_mgr_self();
    __atomic_add_fetch(&ready, 1, __ATOMIC_ACQ_REL);
    uint64_t now = 0;
    while (__atomic_load_n(&ready, __ATOMIC_ACQUIRE) < THREADS)
        (void)sched_yield();
    unsigned int seed = (unsigned int)(me - peers) + 1;
    for (int round = 0; round < ROUNDS; round++) {
        me->open = EACH;
        for (int i = 0; i < EACH; i++) {
            memset(&me->given[i], 0, sizeof me->given[i]);
            me->given[i].from = me;
            seed = seed * 1103515245u + 12345u;
            struct peer *to = &peers[(seed >> 16) % THREADS];
            uint64_t delay = 1 + (seed >> 20) % 50;
            while (still_htimer_async_add(to->manager, &me->given[i].timer, delay, 0, expire, &me->given[i], 0, is_added,
                                          &me->given[i]) == -EAGAIN)
                CHECK(still_htimer_manage_time(++now, 0) >= 0);
            /* Ten are away at a time, and then each is cancelled, or has expired. */
            for (int j = i < 10 ? EACH : i - 10; j < EACH && j <= i; j++)
                if (me->given[j].cancels == 0) {
                    int answer = still_htimer_async_cancel(&me->given[j].timer, is_cancelled, &me->given[j]);
                    CHECK(answer == 0 || answer == -EAGAIN);
                    me->given[j].cancels = answer == 0;
                    break;
                }
        }
        while (me->open > 0) {
            for (int j = 0; j < EACH; j++)
                if (me->given[j].cancels == 0 && still_htimer_async_cancel(&me->given[j].timer, is_cancelled, &me->given[j]) == 0)
                    me->given[j].cancels = 1;
            CHECK(still_htimer_manage_time(++now, 0) >= 0);
            (void)sched_yield();
        }
    }
    /* The others still need this thread. */
    __atomic_add_fetch(&finished, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&finished, __ATOMIC_ACQUIRE) < THREADS) {
        CHECK(still_htimer_manage_time(++now, 0) >= 0);
        (void)sched_yield();
    }
    CHECK(still_htimer_stop() == 0);
    return NULL;
}

static void crowd(void)
{
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&peers[i].thread, NULL, work, &peers[i]) == 0);
    int expired = 0, cancelled = 0;
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(peers[i].thread, NULL) == 0);
        expired += peers[i].expired;
        cancelled += peers[i].cancelled;
    }
    CHECK(expired + cancelled == THREADS * EACH * ROUNDS && expired > 0 && cancelled > 0);
}

/* A timer that two threads add by turns, each when it has expired on the other, while a third one cancels it all the time: a cancellation
 * may look at it on one thread while the other has it again. */
enum { PASSES = 100, AT_ONCE = 8, BESIDE = 8 };

static struct still_htimer passed;
static int whose_turn, passes;

static void pass(struct still_htimer *timer, void *argument) STILL_NOEXCEPT
{
    CHECK(timer == &passed);
    passes++;
    __atomic_store_n(&whose_turn, argument == NULL ? 1 : 0, __ATOMIC_RELEASE);
}

static void *passes_on(void *argument)
{
    struct owner *owner = (struct owner *)argument;
    int me = owner == &second;
    static struct still_htimer beside[2][BESIDE];
    memset(beside[me], 0, sizeof beside[me]);
    struct still_htimer_options options = STILL_HTIMER_OPTIONS_INIT;
    options.tick = 1;
    options.no_clock = 1;
    options.requests = 16;
    CHECK(still_htimer_start(&options) == 0);
    uint64_t now = 0;
    for (int i = 0; i < BESIDE; i++)
        CHECK(still_htimer_add(&beside[me][i], UINT64_MAX, 0, fire, NULL, 0) == 0);
    set(&owner->is_ready);
    while (!is_set(&owner->must_stop)) {
        if (__atomic_load_n(&whose_turn, __ATOMIC_ACQUIRE) == me) {
            __atomic_store_n(&whose_turn, -1, __ATOMIC_RELAXED);
            CHECK(still_htimer_add(&passed, 1 + (now & 3), 0, pass, me ? &passed : NULL, 0) == 0);
        }
        CHECK(still_htimer_manage_time(++now, 0) >= 0);
    }
    /* Takes out what the wheel has, and nothing else. */
    CHECK(still_htimer_stop() == BESIDE);
    return NULL;
}

static void passed_on(void)
{
    static struct owner first;
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    memset(results, 0, sizeof results);
    begin(1, 0, 0);
    CHECK(pthread_create(&first.thread, NULL, passes_on, &first) == 0);
    CHECK(pthread_create(&second.thread, NULL, passes_on, &second) == 0);
    int told_before = 0, cancelled = 0;
    while (!is_set(&first.is_ready) || !is_set(&second.is_ready) || still_htimer_state(&passed) == 0)
        (void)sched_yield();
    /* The last one cancels it for good. */
    for (int round = 1, is_idle = 0; round <= PASSES || !is_idle; round++) {
        for (int i = 0; i < AT_ONCE; i++)
            CHECK(still_htimer_async_cancel(&passed, tell, NULL) == 0);
        await(told_before += AT_ONCE);
        is_idle = results[STILL_HTIMER_CANCELLED] > cancelled;
        if (is_idle)
            CHECK(results[STILL_HTIMER_CANCELLED] == ++cancelled);
        if (is_idle && round < PASSES)
            __atomic_store_n(&whose_turn, round & 1, __ATOMIC_RELEASE);
    }
    end(&first);
    end(&second);
    CHECK(cancelled > 0 && passes > 0);
    CHECK(still_htimer_stop() == 0);
}

int main(void)
{
    refusals();
    one_thread();
    sleeper();
    units();
    other_thread();
    heirs();
    moved();
    child();
    crowd();
    passed_on();
    return 0;
}
