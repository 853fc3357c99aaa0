/*
 * stillpoint/htimer.h, as a C program uses it: timers of the calling thread, and of another one. The caller sets the time, in ticks.
 */
#define STILL_HTIMER_WITHOUT_DPDK
#include <stillpoint/htimer.h>

#include <stdint.h>
#include <stdlib.h>

#define NAME(function) stillpoint_htimers_##function

/* How many timers have expired on this thread. */
static __thread uint64_t fired;
/* How many results of this kind this thread has been told. */
static __thread size_t told[STILL_HTIMER_SENT];

static void count(struct still_htimer *timer, void *argument)
{
    (void)timer;
    (void)argument;
    fired++;
}

static void tell(struct still_htimer *timer, int result, void *argument)
{
    (void)timer;
    (void)argument;
    told[result]++;
}

/* Starts the calling thread's manager, at time 0, with room for this many requests without a result. 0, or a negative errno. */
int NAME(start)(size_t requests)
{
    struct still_htimer_options options = STILL_HTIMER_OPTIONS_INIT;

    options.tick = 1;
    options.no_clock = 1;
    options.requests = requests;
    return still_htimer_start(&options);
}

/* Stops it. 0, or a negative errno. */
int NAME(stop)(void)
{
    ssize_t stopped = still_htimer_stop();

    return stopped < 0 ? (int)stopped : 0;
}

/* Allocates timers. Returns NULL if there is no memory. */
struct still_htimer *NAME(new)(size_t number)
{
    struct still_htimer *timers = aligned_alloc(64, (number + 1) * sizeof *timers);

    for (size_t i = 0; timers != NULL && i < number; i++)
        timers[i] = (struct still_htimer)STILL_HTIMER_INIT;
    return timers;
}

/* Adds timer i, to expire after delays[i] ticks. Returns how many were added. */
size_t NAME(add)(struct still_htimer *timers, const uint64_t *delays, size_t number)
{
    size_t done = 0;

    for (size_t i = 0; i < number; i++)
        done += still_htimer_add(&timers[i], delays[i], 0, count, NULL, STILL_HTIMER_TICKS) == 0;
    return done;
}

/* Cancels each timer, and adds it again. Returns how many were pending. */
size_t NAME(reset)(struct still_htimer *timers, const uint64_t *delays, size_t number)
{
    size_t done = 0;

    for (size_t i = 0; i < number; i++) {
        done += still_htimer_cancel(&timers[i]) == STILL_HTIMER_CANCELLED;
        (void)still_htimer_add(&timers[i], delays[i], 0, count, NULL, STILL_HTIMER_TICKS);
    }
    return done;
}

/* Cancels the timers in this order. Returns how many were pending. */
size_t NAME(cancel)(struct still_htimer *timers, const uint32_t *order, size_t number)
{
    size_t done = 0;

    for (size_t i = 0; i < number; i++)
        done += still_htimer_cancel(&timers[order[i]]) == STILL_HTIMER_CANCELLED;
    return done;
}

/* Manages `times` times, at `now` and at each of the ticks after it. Returns how many timers have expired. */
uint64_t NAME(manage)(uint64_t now, size_t times)
{
    uint64_t before = fired;

    for (size_t i = 0; i < times; i++)
        (void)still_htimer_manage_time(now + i, STILL_HTIMER_TICKS);
    return fired - before;
}

/* The calling thread's manager. */
struct still_htimer_mgr *NAME(self)(void)
{
    return still_htimer_mgr_self();
}

/* Asks another thread to add the timers, as `add` does: each by itself, or many at a time. Returns for how many it has asked. */
size_t NAME(ask)(struct still_htimer_mgr *target, struct still_htimer *timers, const uint64_t *delays, size_t number, size_t burst)
{
    size_t done = 0;

    if (burst == 1) {
        for (size_t i = 0; i < number; i++)
            done += still_htimer_async_add(target, &timers[i], delays[i], 0, count, NULL, STILL_HTIMER_TICKS, tell, NULL) == 0;
        return done;
    }
    while (done < number) {
        struct still_htimer_request requests[64];
        size_t many = 0;

        for (; many < burst && many < 64 && done + many < number; many++)
            requests[many] = (struct still_htimer_request){
                .timer = &timers[done + many],
                .time = delays[done + many],
                .function = count,
                .result_function = tell,
                .flags = STILL_HTIMER_TICKS,
            };
        ssize_t asked = still_htimer_async_add_burst(target, requests, many);
        if (asked <= 0)
            break;
        done += (size_t)asked;
    }
    return done;
}

/* Asks for the cancellation of all timers. Returns for how many it has asked. */
size_t NAME(ask_to_cancel)(struct still_htimer *timers, size_t number)
{
    size_t done = 0;

    for (size_t i = 0; i < number; i++)
        done += still_htimer_async_cancel(&timers[i], tell, NULL) == 0;
    return done;
}

/* Processes requests and results once. Returns how many there were of both. */
size_t NAME(process)(void)
{
    ssize_t done = still_htimer_process();

    return done < 0 ? 0 : (size_t)done;
}

/* How many results of this kind the calling thread has been told since it asked last. */
size_t NAME(told)(int result)
{
    size_t before = told[result];

    told[result] = 0;
    return before;
}
