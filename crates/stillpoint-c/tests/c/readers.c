/* Tests of regions, quiescent states and protected loads: what they hold up, and what they do not. */
#include "check.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

static struct still_domain *domain;
static struct still_reclaimer *reclaimer;
static struct object *shared;

/* Replaces the shared object, and retires the old one. */
static void replace(int value)
{
    struct object *old = (struct object *)still_exchange(&shared, make(value));
    CHECK(still_retire(reclaimer, old, sizeof *old, destroy, NULL) == 0);
}

/* An object is not destroyed while this thread holds it, and is destroyed afterwards. */
static void is_held_until(void (*release)(void *), void *argument)
{
    int before = destroyed();
    replace(2);
    CHECK(still_poll(reclaimer, STILL_ALL) == 0 && still_poll(reclaimer, STILL_ALL) == 0);
    CHECK(destroyed() == before && still_pending(reclaimer) == 1);
    release(argument);
    CHECK(still_flush(reclaimer, STILL_FOREVER) == 0);
    CHECK(destroyed() == before + 1 && still_pending(reclaimer) == 0);
}

static void unpin(void *reader)
{
    still_unpin((struct still_reader *)reader);
}

static void release(void *held)
{
    still_release(*(struct still_protected *)held);
}

static void report(void *qsbr)
{
    still_quiescent((struct still_qsbr *)qsbr);
    CHECK(still_offline((struct still_qsbr *)qsbr) == 0);
}

static void let_go(void *hold)
{
    CHECK(still_hold_release((struct still_hold *)hold) == 0);
}

static void regions(struct still_reader *reader)
{
    CHECK(!still_is_pinned(reader));
    still_pin(reader);
    CHECK(still_is_pinned(reader));
    still_pin(reader); /* nested */
    still_unpin(reader);
    CHECK(still_is_pinned(reader));
    struct object *object = (struct object *)still_load(&shared);
    int value = object->value;
    is_held_until(unpin, reader);
    CHECK(value > 0 && !still_is_pinned(reader));

    still_pin(reader);
    REFUSED(still_synchronize(domain, STILL_FOREVER), -EDEADLK, "in a region of domain");
    REFUSED(still_wait(domain, still_start(domain), STILL_FOREVER), -EDEADLK, "in a region of domain");
    still_unpin(reader);
    CHECK(still_synchronize(domain, STILL_FOREVER) == 0);
}

static void protected_loads(struct still_reader *reader)
{
    struct object *nothing = NULL;
    struct still_protected none = still_protect(reader, &nothing);
    CHECK(none.object == NULL);
    still_release(none);

    struct still_protected held = still_protect(reader, &shared);
    CHECK(held.object == shared);
    is_held_until(release, &held);

    /* The reader needs more slots than the first one. They are released in a mixed order. */
    enum { MANY = 100 };
    static struct object *objects[MANY];
    static struct still_protected all[MANY];
    for (int i = 0; i < MANY; i++) {
        objects[i] = make(i);
        all[i] = still_protect(reader, &objects[i]);
        CHECK(all[i].object == objects[i]);
    }
    int before = destroyed();
    for (int i = 0; i < MANY; i++)
        CHECK(still_retire(reclaimer, still_exchange(&objects[i], NULL), sizeof(struct object), destroy, NULL) == 0);
    still_poll(reclaimer, STILL_ALL);
    CHECK(still_pending(reclaimer) == MANY);
    REFUSED(still_flush(reclaimer, STILL_FOREVER), -EDEADLK, "protected load");
    for (int i = 0; i < MANY; i += 2)
        still_release(all[i]);
    while (still_poll(reclaimer, STILL_ALL) > 0) {
    }
    CHECK(destroyed() == before + MANY / 2);
    for (int i = MANY - 1; i > 0; i -= 2) {
        CHECK(((struct object *)all[i].object)->value == i);
        still_release(all[i]);
    }
    CHECK(still_flush(reclaimer, STILL_FOREVER) == 0 && destroyed() == before + MANY);
}

/* Called by a poll of a QSBR reader that is online: what is refused does not report a quiescent state. */
static void synchronizes(void *object, void *qsbr) STILL_NOEXCEPT
{
    uint64_t token = still_start(domain);
    REFUSED(still_qsbr_synchronize((struct still_qsbr *)qsbr, STILL_FOREVER), -EDEADLK, "its own end");
    CHECK(still_is_online((struct still_qsbr *)qsbr) == 1 && still_check(domain, token) == 0);
    destroy(object, NULL);
}

static void quiescent_states(void)
{
    struct still_qsbr *qsbr = still_qsbr_new(domain);
    CHECK(qsbr != NULL && still_is_online(qsbr) == 1);
    is_held_until(report, qsbr);
    CHECK(still_is_online(qsbr) == 0);
    CHECK(still_offline(qsbr) == 0 && still_is_online(qsbr) == 0); /* again */
    CHECK(still_online(qsbr) == 0 && still_online(qsbr) == 0 && still_is_online(qsbr) == 1);

    /* The next report ends the grace period of a token. */
    uint64_t token = still_start(domain);
    CHECK(still_check(domain, token) == 0);
    still_quiescent(qsbr);
    CHECK(still_check(domain, token) == 1);
    still_quiescent(qsbr); /* the token has not moved */
    CHECK(still_check(domain, token) == 1);

    int before = destroyed();
    CHECK(still_retire(reclaimer, make(1), sizeof(struct object), synchronizes, qsbr) == 0);
    while (destroyed() == before) {
        still_quiescent(qsbr);
        CHECK(still_poll(reclaimer, STILL_ALL) >= 0);
    }

    REFUSED(still_synchronize(domain, STILL_FOREVER), -EDEADLK, "QSBR");
    CHECK(still_qsbr_synchronize(qsbr, STILL_FOREVER) == 0 && still_is_online(qsbr) == 1);
    CHECK(still_offline(qsbr) == 0);
    CHECK(still_qsbr_synchronize(qsbr, STILL_FOREVER) == 0 && still_is_online(qsbr) == 0);
    CHECK(still_qsbr_free(qsbr) == 0);
}

static void *lets_go(void *hold)
{
    CHECK(still_hold_release((struct still_hold *)hold) == 0);
    return NULL;
}

static void holds(void)
{
    struct still_hold *hold = still_hold_new(domain);
    struct object *held = NULL;
    CHECK(still_hold_protect(hold, &shared, &held) == 1 && held == shared);
    is_held_until(let_go, hold);

    CHECK(still_hold_protect(hold, &shared, &held) == 1 && held == shared);
    int before = destroyed();
    replace(3);
    REFUSED(still_flush(reclaimer, 1000000), -ETIMEDOUT, "protected loads");
    CHECK(destroyed() == before);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, lets_go, hold) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(still_flush(reclaimer, STILL_FOREVER) == 0 && destroyed() == before + 1);
    struct object *nothing = NULL;
    CHECK(still_hold_protect(hold, &nothing, &held) == 0 && held == NULL);
    CHECK(still_hold_free(hold) == 0);
}

/* The link lies in the object that the hold holds. While the call reads it, another thread frees what nobody holds. The page of the object
 * cannot be read, so that the call stops there. */
struct node {
    struct node *next;
};

static struct node *first;
static size_t page;
static sem_t touched, looked;
static int is_gone, was_gone;

static void goes(void *node, void *context) STILL_NOEXCEPT
{
    (void)node;
    (void)context;
    __atomic_store_n(&is_gone, 1, __ATOMIC_SEQ_CST);
}

static void *flushes(void *of)
{
    CHECK(sem_wait(&touched) == 0);
    ssize_t left = still_flush((struct still_reclaimer *)of, 20000000);
    was_gone = __atomic_load_n(&is_gone, __ATOMIC_SEQ_CST);
    CHECK(left == (was_gone ? 0 : -ETIMEDOUT) && sem_post(&looked) == 0);
    return NULL;
}

static void touches(int signal)
{
    (void)signal;
    if (sem_post(&touched) != 0 || sem_wait(&looked) != 0 || mprotect(first, page, PROT_READ | PROT_WRITE) != 0)
        _exit(1);
}

static void holds_the_link(struct node *next)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && sem_init(&touched, 0, 0) == 0 && sem_init(&looked, 0, 0) == 0);
    struct node *link = first = (struct node *)memory, *found = NULL;
    first->next = next;
    is_gone = 0;
    struct still_hold *hold = still_hold_new(domain);
    CHECK(still_hold_protect(hold, &link, &found) == 1 && found == first);
    CHECK(still_retire(reclaimer, still_exchange(&link, NULL), sizeof *first, goes, NULL) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, flushes, reclaimer) == 0);
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = touches;
    CHECK(sigaction(SIGSEGV, &action, &before) == 0 && mprotect(first, page, PROT_NONE) == 0);
    CHECK(still_hold_protect(hold, &first->next, &found) == (next != NULL) && found == next);
    CHECK(sigaction(SIGSEGV, &before, NULL) == 0 && pthread_join(thread, NULL) == 0 && !was_gone);
    /* Then it is released. */
    CHECK(still_flush(reclaimer, STILL_FOREVER) == 0 && is_gone);
    CHECK(still_hold_free(hold) == 0 && munmap(first, page) == 0);
}

/* Another thread holds up the wait. The wait ends at its limit, and names that thread. */
static pthread_barrier_t there, seen;

static void *stays(void *unused)
{
    (void)unused;
    struct still_reader *reader = still_reader_new(domain);
    still_pin(reader);
    pthread_barrier_wait(&there);
    pthread_barrier_wait(&seen);
    still_unpin(reader);
    CHECK(still_reader_free(reader) == 0);
    return NULL;
}

static void stalls(void)
{
    pthread_t thread;
    CHECK(pthread_barrier_init(&there, NULL, 2) == 0 && pthread_barrier_init(&seen, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, stays, NULL) == 0);
    pthread_barrier_wait(&there);
    CHECK(pthread_setname_np(thread, "stays-in") == 0);
    REFUSED(still_synchronize(domain, 1000000), -ETIMEDOUT, "stays-in");
    struct still_stall stall;
    stall.size = sizeof stall;
    CHECK(still_domain_stall(domain, &stall) == 1);
    CHECK(stall.thread != 0 && stall.kind == STILL_KIND_GUARD && strcmp(stall.name, "stays-in") == 0);
    CHECK(stall.waited >= 0 && stall.others == 0);
    pthread_barrier_wait(&seen);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(still_domain_stall(domain, &stall) == 0);
    CHECK(still_synchronize(domain, STILL_FOREVER) == 0);
}

static void run(uint32_t mode)
{
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    options.mode = mode;
    options.name = "readers";
    domain = still_domain_new(&options);
    if (domain == NULL && errno == EOPNOTSUPP) {
        printf("skipped: in fence mode asymmetric: %s\n", still_error());
        return;
    }
    CHECK(domain != NULL);
    struct still_reclaimer_options paced = STILL_RECLAIMER_OPTIONS_INIT;
    paced.fence_interval = 1;
    reclaimer = still_reclaimer_new(domain, &paced);
    shared = make(1);
    struct still_reader *reader = still_reader_new(domain);
    CHECK(reclaimer != NULL && reader != NULL);
    regions(reader);
    protected_loads(reader);
    CHECK(still_reader_free(reader) == 0);
    quiescent_states();
    holds();
    struct node second = { NULL };
    holds_the_link(&second);
    holds_the_link(NULL);
    stalls();
    struct still_stats stats;
    stats.size = sizeof stats;
    CHECK(still_domain_stats(domain, &stats) == 0);
    CHECK(stats.readers == 0 && stats.holds == 0 && stats.pending == 0 && stats.retired == stats.freed);
    CHECK(stats.fence_error == 0 && stats.oldest == -1 && stats.grace_periods > 0);
    CHECK(-1 <= stats.delay_median && stats.delay_median <= stats.delay_p99);
    free(shared);
    CHECK(still_reclaimer_free(reclaimer) == 0 && still_domain_free(domain) == 0);
}

int main(void)
{
    run(STILL_MODE_SYMMETRIC);
    run(STILL_MODE_ASYMMETRIC);
    run(STILL_MODE_BEST);
    return 0;
}
