/* Tests of retirement: limits, refused objects, destructors that call the library, background reclaimers, objects that are left to the
 * domain. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct still_domain *new_domain(size_t max_pending)
{
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    options.max_pending = max_pending;
    struct still_domain *domain = still_domain_new(&options);
    CHECK(domain != NULL);
    return domain;
}

static void limits(void)
{
    struct still_domain *domain = new_domain(3);
    struct still_reader *reader = still_reader_new(domain);
    struct still_reclaimer_options options = STILL_RECLAIMER_OPTIONS_INIT;
    options.max_pending = 2;
    struct still_reclaimer *one = still_reclaimer_new(domain, &options), *another = still_reclaimer_new(domain, NULL);
    int before = destroyed();
    still_pin(reader);
    CHECK(still_retire(one, make(1), 8, destroy, NULL) == 0 && still_retire(one, make(2), 8, destroy, NULL) == 0);
    struct object *third = make(3), *fourth = make(4);
    REFUSED(still_retire(one, third, 8, destroy, NULL), -ENOSPC, "full");
    CHECK(still_retire(another, third, 8, destroy, NULL) == 0);
    REFUSED(still_retire(another, fourth, 8, destroy, NULL), -EDQUOT, "domain is full");
    CHECK(destroyed() == before && fourth->value == 4); /* the object is still ours */
    CHECK(still_domain_retire(domain, fourth, 8, destroy, NULL) == 0); /* the domain cannot refuse */
    struct still_stats stats;
    stats.size = sizeof stats;
    CHECK(still_domain_stats(domain, &stats) == 0);
    CHECK(stats.pending == 4 && stats.beyond_limits == 1 && stats.handed_back >= 2);
    still_unpin(reader);
    CHECK(still_flush(one, STILL_FOREVER) == 0 && still_flush(another, STILL_FOREVER) == 0);
    CHECK(still_barrier(domain, STILL_FOREVER) == 0 && destroyed() == before + 4);
    CHECK(still_reader_free(reader) == 0 && still_reclaimer_free(one) == 0 && still_reclaimer_free(another) == 0);
    CHECK(still_domain_free(domain) == 0);
}

/* An object that is larger than a limit is refused at once, even by a reclaimer that waits for room. */
static void too_large(void)
{
    struct still_domain_options small = STILL_DOMAIN_OPTIONS_INIT;
    small.max_pending_bytes = 100;
    struct still_domain *domains[] = { still_domain_new(NULL), still_domain_new(&small) };
    for (int i = 0; i < 2; i++) {
        struct still_reclaimer_options options = STILL_RECLAIMER_OPTIONS_INIT;
        options.max_pending_bytes = i == 0 ? 100 : 0;
        options.when_full = STILL_FULL_WAIT;
        options.full_wait = STILL_FOREVER;
        struct still_reclaimer *reclaimer = still_reclaimer_new(domains[i], &options);
        struct still_background *background = still_background_new(domains[i], &options);
        struct object *object = make(1);
        REFUSED(still_retire(reclaimer, object, 101, destroy, NULL), -EMSGSIZE, "max_pending_bytes");
        REFUSED(still_submit(background, object, 101, destroy, NULL), -EMSGSIZE, "max_pending_bytes");
        CHECK(still_retire(reclaimer, object, 100, destroy, NULL) == 0 && still_flush(reclaimer, STILL_FOREVER) == 0);
        CHECK(still_reclaimer_free(reclaimer) == 0 && still_background_free(background, STILL_FOREVER) == 0);
        CHECK(still_domain_free(domains[i]) == 0);
    }
}

/* A destructor that calls the library. */
struct world {
    struct still_domain *domain;
    struct still_reclaimer *reclaimer;
    struct object *child;
};

static void destroys_its_child(void *object, void *context) STILL_NOEXCEPT
{
    struct world *world = (struct world *)context;
    CHECK(still_retire(world->reclaimer, world->child, sizeof *world->child, destroy, NULL) == 0);
    REFUSED(still_poll(world->reclaimer, STILL_ALL), -EBUSY, "in use");
    REFUSED(still_flush(world->reclaimer, 0), -EBUSY, "in use");
    REFUSED(still_reclaimer_free(world->reclaimer), -EBUSY, "in use");
    REFUSED(still_barrier(world->domain, STILL_FOREVER), -EDEADLK, "destructor");
    struct still_reader *reader = still_reader_new(world->domain);
    still_pin(reader);
    still_unpin(reader);
    CHECK(still_reader_free(reader) == 0);
    destroy(object, NULL);
}

static void calls_in(void)
{
    struct world world = { new_domain(0), NULL, make(2) };
    world.reclaimer = still_reclaimer_new(world.domain, NULL);
    int before = destroyed();
    CHECK(still_retire(world.reclaimer, make(1), 8, destroys_its_child, &world) == 0);
    CHECK(still_flush(world.reclaimer, STILL_FOREVER) == 0);
    CHECK(destroyed() == before + 1); /* the child was left to the domain */
    CHECK(still_barrier(world.domain, STILL_FOREVER) == 0 && destroyed() == before + 2);
    CHECK(still_reclaimer_free(world.reclaimer) == 0 && still_domain_free(world.domain) == 0);
}

/* Objects that are pending when the last handle of a domain is freed are destroyed. */
static void the_end(void)
{
    struct still_domain *domain = new_domain(0);
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
    int before = destroyed();
    CHECK(still_retire(reclaimer, make(1), 8, destroy, NULL) == 0);
    CHECK(still_domain_free(domain) == 0 && destroyed() == before);
    CHECK(still_reclaimer_free(reclaimer) == 0 && destroyed() == before + 1);
}

static void frees_its_background(void *object, void *background) STILL_NOEXCEPT
{
    REFUSED(still_background_free((struct still_background *)background, 0), -EDEADLK, "destructor");
    destroy(object, NULL);
}

static volatile sig_atomic_t signals_there;

static void blocks_signals(void *object, void *context) STILL_NOEXCEPT
{
    sigset_t set;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &set) == 0);
    CHECK(sigismember(&set, SIGTERM) == 1 && sigismember(&set, SIGUSR1) == 1);
    CHECK(sigismember(&set, SIGSEGV) == 0 && sigismember(&set, SIGPROF) == 0); /* for crash handlers and profilers */
    signals_there = 1;
    destroy(object, context);
}

static void backgrounds(void)
{
    struct still_domain *domain = new_domain(0);
    struct still_background *background = still_background_new(domain, NULL);
    CHECK(background != NULL);
    int before = destroyed();
    enum { MANY = 10000 };
    for (int i = 0; i < MANY; i++)
        CHECK(still_submit(background, make(i), sizeof(struct object), destroy, NULL) == 0);
    CHECK(still_submit(background, make(1), 1, frees_its_background, background) == 0);
    CHECK(still_submit(background, make(1), 1, blocks_signals, NULL) == 0);
    CHECK(still_background_free(background, STILL_FOREVER) == 0);
    CHECK(destroyed() == before + MANY + 2 && signals_there == 1);
    REFUSED(still_submit(background, make(1), 1, destroy, NULL), -EBADF, "freed");

    /* If readers hold objects, still_background_free ends at its limit, and leaves the objects to the domain. */
    struct still_reader *reader = still_reader_new(domain);
    struct object *shared = make(1);
    struct still_protected held = still_protect(reader, &shared);
    background = still_background_new(domain, NULL);
    CHECK(still_submit(background, shared, 1, destroy, NULL) == 0);
    still_pin(reader);
    REFUSED(still_background_free(background, STILL_FOREVER), -EDEADLK, "in a region of domain");
    still_unpin(reader);
    CHECK(still_background_free(background, 1000000) == 1);
    CHECK(shared->value == 1);
    still_release(held);
    before = destroyed();
    CHECK(still_barrier(domain, STILL_FOREVER) == 0 && destroyed() == before + 1);
    CHECK(still_reader_free(reader) == 0 && still_domain_free(domain) == 0);
}

/* With STILL_FULL_RECLAIM, destructors may run on the submitting thread. They cannot free their own background reclaimer. */
static void from_a_submitter(void)
{
    struct still_domain *domain = new_domain(0);
    struct still_reclaimer_options options = STILL_RECLAIMER_OPTIONS_INIT;
    options.max_pending = 4;
    options.when_full = STILL_FULL_RECLAIM;
    struct still_background *background = still_background_new(domain, &options);
    for (int i = 0; i < 10000; i++) {
        struct object *object = make(1);
        int answer;
        while ((answer = still_submit(background, object, 1, frees_its_background, background)) == -ENOSPC) {
        }
        CHECK(answer == 0);
    }
    CHECK(still_background_free(background, STILL_FOREVER) == 0 && still_domain_free(domain) == 0);
}

/* A child does not have the thread of its parent's background reclaimer. */
static void forked(void)
{
    struct still_domain *domain = new_domain(0);
    struct still_background *background = still_background_new(domain, NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(still_reset_after_fork(domain) == 0);
        struct object *object = make(1);
        REFUSED(still_submit(background, object, 1, destroy, NULL), -EPIPE, "parent");
        free(object);
        CHECK(still_background_free(background, STILL_FOREVER) == 0);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(still_background_free(background, STILL_FOREVER) == 0 && still_domain_free(domain) == 0);
}

/* A thread would wait for room while its own protected loads hold all objects. */
static void waits_for_itself(void)
{
    struct still_domain *domain = new_domain(0);
    struct still_reclaimer_options options = STILL_RECLAIMER_OPTIONS_INIT;
    options.max_pending = 2;
    options.when_full = STILL_FULL_WAIT;
    options.full_wait = STILL_FOREVER;
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, &options);
    struct still_reader *reader = still_reader_new(domain);
    int before = destroyed();
    struct object *third = make(3);
    still_pin(reader);
    for (int i = 0; i < 2; i++)
        CHECK(still_retire(reclaimer, make(i), 1, destroy, NULL) == 0);
    REFUSED(still_retire(reclaimer, third, 1, destroy, NULL), -EDEADLK, "itself");
    still_unpin(reader);
    CHECK(still_retire(reclaimer, third, 1, destroy, NULL) == 0); /* there is room again */
    CHECK(still_flush(reclaimer, STILL_FOREVER) == 0 && destroyed() == before + 3);

    struct object *links[2] = { make(1), make(2) };
    struct still_protected held[2];
    third = make(3);
    for (int i = 0; i < 2; i++) {
        held[i] = still_protect(reader, &links[i]);
        CHECK(still_retire(reclaimer, links[i], 1, destroy, NULL) == 0);
    }
    REFUSED(still_retire(reclaimer, third, 1, destroy, NULL), -EDEADLK, "itself");
    still_release(held[0]);
    CHECK(still_retire(reclaimer, third, 1, destroy, NULL) == 0);
    still_release(held[1]);
    CHECK(still_flush(reclaimer, STILL_FOREVER) == 0 && destroyed() == before + 6);

    struct still_background *background = still_background_new(domain, &options);
    still_pin(reader);
    int answer = 0;
    third = make(3);
    for (int i = 0; i < 2; i++)
        CHECK(still_submit(background, make(i), 1, destroy, NULL) == 0);
    answer = still_submit(background, third, 1, destroy, NULL);
    CHECK(answer == -EDEADLK);
    still_unpin(reader);
    CHECK(still_submit(background, third, 1, destroy, NULL) == 0);
    CHECK(still_background_free(background, STILL_FOREVER) == 0 && destroyed() == before + 9);
    CHECK(still_reader_free(reader) == 0 && still_reclaimer_free(reclaimer) == 0 && still_domain_free(domain) == 0);
}

static void bad_numbers(void)
{
    struct still_domain *domain = new_domain(0);
    struct still_reclaimer *reclaimer = still_reclaimer_new(domain, NULL);
    REFUSED(still_synchronize(domain, -2), -EINVAL, "a time of -2 ns is negative: pass 0 or more");
    REFUSED(still_flush(reclaimer, INT64_MIN), -EINVAL, "negative");
    REFUSED(still_retire(reclaimer, &domain, SIZE_MAX, destroy, NULL), -EINVAL, "larger");
    REFUSED(still_domain_retire(domain, &domain, SIZE_MAX / 2, destroy, NULL), -EINVAL, "an object of 9223372036854775807 bytes");
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    options.boost_after = -2;
    CHECK(still_domain_new(&options) == NULL && errno == EINVAL);
    CHECK(still_reclaimer_free(reclaimer) == 0 && still_domain_free(domain) == 0);
}

/* A cancellation during a call takes effect after the call. */
static struct still_domain *waited;
static pthread_barrier_t begun;

static void *waits(void *unused)
{
    pthread_barrier_wait(&begun);
    /* A reader holds it up for 20 ms. The stall report reads /proc, which has cancellation points. */
    (void)!still_synchronize(waited, 20000000);
    (void)!still_synchronize(waited, STILL_FOREVER);
    pthread_testcancel();
    return unused;
}

static void on_stall(const struct still_stall *stall, void *count) STILL_NOEXCEPT
{
    CHECK(stall->size == sizeof *stall);
    __atomic_add_fetch((int *)count, 1, __ATOMIC_SEQ_CST);
}

static void cancellation(void)
{
    int count = 0;
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    options.stall_after = 1000;
    options.on_stall = on_stall;
    options.context = &count;
    waited = still_domain_new(&options);
    struct still_reader *reader = still_reader_new(waited);
    still_pin(reader);
    pthread_t thread;
    CHECK(pthread_barrier_init(&begun, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
    pthread_barrier_wait(&begun);
    CHECK(pthread_cancel(thread) == 0);
    while (__atomic_load_n(&count, __ATOMIC_SEQ_CST) == 0)
        usleep(100);
    still_unpin(reader);
    void *answer = NULL;
    CHECK(pthread_join(thread, &answer) == 0 && answer == PTHREAD_CANCELED);
    struct still_stats stats;
    stats.size = sizeof stats;
    CHECK(still_domain_stats(waited, &stats) == 0);
    CHECK(stats.stalls == (uint64_t)count && stats.delay_median == -1 && stats.delay_p99 == -1);
    CHECK(still_reader_free(reader) == 0 && still_domain_free(waited) == 0);
}

int main(void)
{
    limits();
    too_large();
    calls_in();
    the_end();
    backgrounds();
    from_a_submitter();
    forked();
    waits_for_itself();
    bad_numbers();
    cancellation();
    return 0;
}
