/* Which readers the domain fences for: those that have loaded something, and have not reported since the grace period began. A reader that
 * is offline is none of them. The other thread has the reader, since a thread needs no fence for its own readers. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct still_domain *domain;
static struct still_reclaimer *reclaimer;
static struct still_reader *reader;
static struct object *shared, *other, *nothing;
static struct still_protected held, more;
static pthread_barrier_t begins, ends;
static void (*step)(void);

static uint32_t other_thread;

static void *acts(void *unused)
{
    other_thread = (uint32_t)syscall(SYS_gettid);
    reader = still_reader_new(domain);
    CHECK(reader != NULL);
    for (;;) {
        pthread_barrier_wait(&begins);
        if (step == NULL)
            break;
        step();
        pthread_barrier_wait(&ends);
    }
    CHECK(still_reader_free(reader) == 0);
    return unused;
}

/* Runs a step on the other thread. */
static void there(void (*next)(void))
{
    step = next;
    pthread_barrier_wait(&begins);
    if (next != NULL)
        pthread_barrier_wait(&ends);
}

static struct still_stats stats(void)
{
    struct still_stats found;
    found.size = sizeof found;
    CHECK(still_domain_stats(domain, &found) == 0);
    return found;
}

static uint64_t heavy_fences(void)
{
    return stats().heavy_fences;
}

/* Starts a grace period, runs the step, and returns how many fences end the grace period. */
static uint64_t fences_after(void (*next)(void))
{
    uint64_t token = still_start(domain);
    there(next);
    uint64_t before = heavy_fences();
    CHECK(still_check(domain, token) == 1);
    return heavy_fences() - before;
}

static void rests(void) {}

static void pins(void)
{
    still_pin(reader);
    CHECK(still_is_pinned(reader));
    CHECK(still_load(&shared) == shared);
}

static void unpins(void)
{
    still_unpin(reader);
}

static void visits(void)
{
    pins();
    unpins();
    CHECK(!still_is_pinned(reader));
}

static void nests(void)
{
    pins();
    pins();
    unpins();
    CHECK(still_is_pinned(reader));
}

static void protects(void)
{
    held = still_protect(reader, &shared);
    CHECK(held.object == shared);
}

static void protects_another(void)
{
    more = still_protect(reader, &other);
    CHECK(more.object == other && more.slot_ != held.slot_);
}

static void releases(void)
{
    still_release(held);
}

static void releases_both(void)
{
    releases();
    still_release(more);
}

static void looks(void)
{
    protects();
    releases();
}

static void finds_nothing(void)
{
    CHECK(still_protect(reader, &nothing).object == NULL);
}

static void goes(void)
{
    CHECK(still_reader_offline(reader) == 1);
    CHECK(still_reader_offline(reader) == 0);
}

static void may_not_go(void)
{
    CHECK(still_reader_offline(reader) == 0 && still_is_pinned(reader));
}

static void looks_in_a_region(void)
{
    looks();
    CHECK(still_is_pinned(reader));
}

static int is_held_up(void)
{
    return still_check(domain, still_start(domain)) == 0;
}

static void replace(struct object **link)
{
    struct object *old = (struct object *)still_exchange(link, make(1));
    CHECK(still_retire(reclaimer, old, sizeof *old, destroy, NULL) == 0);
    CHECK(still_poll(reclaimer, STILL_ALL) >= 0);
}

static void steps(int is_asymmetric)
{
    uint64_t one = is_asymmetric ? 1 : 0;
    CHECK(fences_after(rests) == 0); /* a new reader */
    CHECK(fences_after(visits) == 0);
    CHECK(fences_after(rests) == one);
    CHECK(fences_after(looks) == 0);
    CHECK(fences_after(rests) == one);
    CHECK(fences_after(finds_nothing) == 0);
    CHECK(fences_after(rests) == one);
    for (int times = 0; times < 3; times++) {
        there(goes);
        CHECK(fences_after(rests) == 0);
        there(times == 0 ? visits : times == 1 ? looks : finds_nothing);
        CHECK(fences_after(rests) == one);
    }

    /* A region of a reader that was offline holds up what any region holds up. */
    void (*const regions[])(void) = {pins, nests};
    for (int which = 0; which < 2; which++) {
        there(goes);
        there(regions[which]);
        there(may_not_go);
        CHECK(is_held_up());
        there(looks_in_a_region);
        CHECK(is_held_up());
        CHECK(fences_after(unpins) == 0);
    }

    /* So does a protected load, and it lasts while the reader is offline. */
    there(goes);
    there(protects);
    replace(&shared);
    CHECK(still_pending(reclaimer) == 1);
    there(goes);
    CHECK(still_poll(reclaimer, STILL_ALL) == 0 && still_pending(reclaimer) == 1);
    there(protects_another);
    replace(&other);
    CHECK(still_pending(reclaimer) == 2);
    there(releases_both);
    CHECK(still_flush(reclaimer, STILL_FOREVER) == 0);

    REFUSED(still_reader_offline(reader), -EPERM, "another thread");
    REFUSED(still_reader_offline(NULL), -EINVAL, "NULL");
}

static struct still_stall named;

static void note(const struct still_stall *stall, void *context) STILL_NOEXCEPT
{
    CHECK(still_check(domain, still_start(domain)) == 1); /* it may use the domain */
    named = *stall;
    ++*(int *)context;
}

/* What still_domain_stats and still_domain_silent say about the readers of other threads. In a symmetric domain, no reader needs a fence. */
static void counts(int is_asymmetric)
{
    uint64_t one = is_asymmetric ? 1 : 0, vouched = stats().vouched;
    there(visits);
    CHECK(stats().silent == 0);
    CHECK(fences_after(visits) == 0); /* it has vouched */
    CHECK(stats().vouched == vouched + one && stats().silent == 0);
    CHECK(still_start(domain) > 0);
    CHECK(stats().silent == one);
    uint64_t missed = 0;
    do {
        int calls = 0;
        CHECK(still_domain_silent(domain, note, &calls) == (int)one && calls == (int)one);
        missed++; /* `note` starts another one */
        CHECK(!is_asymmetric || (named.thread == other_thread && named.kind == STILL_KIND_GUARD && named.missed == missed));
    } while (is_asymmetric && named.activity != STILL_ACTIVITY_SLEEPING);
    REFUSED(still_domain_silent(domain, NULL, NULL), -EINVAL, "NULL");
    CHECK(fences_after(rests) == one);
    CHECK(stats().vouched == vouched + one && stats().silent == one);
    there(goes);
    int calls = 0;
    CHECK(stats().silent == 0 && still_domain_silent(domain, note, &calls) == 0 && calls == 0);
    CHECK(fences_after(rests) == 0);
    CHECK(stats().vouched == vouched + 2 * one);

    /* To a program that was compiled with an earlier header, nothing is written beyond its struct. */
    struct still_stats early;
    memset(&early, 0xee, sizeof early);
    early.size = offsetof(struct still_stats, vouched);
    CHECK(still_domain_stats(domain, &early) == 0);
    CHECK(early.ready == 0 && early.vouched == UINT64_C(0xeeeeeeeeeeeeeeee) && early.silent == early.vouched);
}

/* Which states need a return, also where no test can stop a thread: in a signal handler that has interrupted one. */
static void states(void)
{
    const uint64_t here[] = {STILL_IDLE_ | 1, STILL_IDLE_ | 2, STILL_IDLE_ | (UINT64_C(1) << 62)};
    const uint64_t open[] = {1, 2, UINT64_C(1) << 62}, away[] = {STILL_AWAY_, STILL_IDLE_, 0};
    for (int each = 0; each < 3; each++) {
        CHECK(still_is_here_(here[each]) && !still_is_open_(here[each]));
        CHECK(!still_is_here_(open[each]) && still_is_open_(open[each]));
        CHECK(!still_is_here_(away[each]) && !still_is_open_(away[each]));
    }
}

/* The thread comes back again and again, and handlers pin meanwhile. */
static int handled, returned, is_last;
static __thread struct still_reader *interrupted;

static void look_around(void)
{
    still_pin(interrupted);
    struct object *found = (struct object *)still_load(&shared);
    CHECK(found->value == 1);
    CHECK(still_is_pinned(interrupted) && found->value == 1);
    still_unpin(interrupted);
}

static void handler(int signal)
{
    (void)signal;
    look_around();
    __atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
}

static void *returns(void *unused)
{
    interrupted = still_reader_new(domain);
    sigset_t usual;
    CHECK(sigemptyset(&usual) == 0 && sigaddset(&usual, SIGUSR1) == 0);
    CHECK(interrupted != NULL && pthread_sigmask(SIG_UNBLOCK, &usual, NULL) == 0);
    while (!__atomic_load_n(&is_last, __ATOMIC_ACQUIRE)) {
        (void)still_reader_offline(interrupted);
        look_around();
        (void)still_reader_offline(interrupted);
        struct still_protected found = still_protect(interrupted, &shared);
        CHECK(((struct object *)found.object)->value == 1);
        still_release(found);
        CHECK(!still_is_pinned(interrupted));
        __atomic_add_fetch(&returned, 1, __ATOMIC_RELAXED);
    }
    CHECK(pthread_sigmask(SIG_BLOCK, &usual, NULL) == 0 && still_reader_free(interrupted) == 0);
    return unused;
}

static void handlers(void)
{
    sigset_t usual;
    CHECK(sigemptyset(&usual) == 0 && sigaddset(&usual, SIGUSR1) == 0 && pthread_sigmask(SIG_BLOCK, &usual, NULL) == 0);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    handled = returned = is_last = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, returns, NULL) == 0);
    while (__atomic_load_n(&handled, __ATOMIC_RELAXED) < 200 || __atomic_load_n(&returned, __ATOMIC_RELAXED) < 200) {
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        replace(&shared);
    }
    __atomic_store_n(&is_last, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(still_flush(reclaimer, STILL_FOREVER) == 0);
}

int main(void)
{
    states();
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    for (options.mode = STILL_MODE_SYMMETRIC; options.mode <= STILL_MODE_ASYMMETRIC; options.mode++) {
        domain = still_domain_new(&options);
        if (domain == NULL && errno == EOPNOTSUPP) {
            printf("skipped: in fence mode asymmetric: %s\n", still_error());
            continue;
        }
        struct still_reclaimer_options eager = STILL_RECLAIMER_OPTIONS_INIT;
        eager.batch = 1;
        eager.fence_interval = 1;
        reclaimer = still_reclaimer_new(domain, &eager);
        CHECK(domain != NULL && reclaimer != NULL);
        shared = make(1);
        other = make(1);
        CHECK(pthread_barrier_init(&begins, NULL, 2) == 0 && pthread_barrier_init(&ends, NULL, 2) == 0);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, acts, NULL) == 0);
        there(rests);
        steps(options.mode == STILL_MODE_ASYMMETRIC);
        counts(options.mode == STILL_MODE_ASYMMETRIC);
        there(NULL);
        CHECK(pthread_join(thread, NULL) == 0);
        handlers();
        CHECK(still_reclaimer_free(reclaimer) == 0 && still_domain_free(domain) == 0);
        free(shared);
        free(other);
    }
    return 0;
}
