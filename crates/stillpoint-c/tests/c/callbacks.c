/* Callbacks in the program's own objects: order, protected objects, barriers, pauses, fork. */
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 1000 };

struct numbered {
    struct still_callback callback; /* first, so that its address is also that of the struct */
    int number;
};

static int next_number;

static void in_order(struct still_callback *callback) STILL_NOEXCEPT
{
    struct numbered *node = (struct numbered *)(void *)callback;
    CHECK(node->number == next_number++);
}

static void order(struct still_domain *domain)
{
    static struct numbered nodes[MANY];
    struct still_queue *queue = still_queue_new(domain);
    struct still_reader *reader = still_reader_new(domain);
    next_number = 0;
    still_pin(reader);
    for (int i = 0; i < MANY; i++) {
        nodes[i].number = i;
        CHECK(still_call(queue, &nodes[i].callback, in_order) == 0);
    }
    CHECK(still_queue_poll(queue, STILL_ALL) == 0 && still_queue_pending(queue) == MANY);
    REFUSED(still_queue_barrier(queue, STILL_FOREVER), -EDEADLK, "in a region of domain");
    REFUSED(still_queue_run(queue), -EDEADLK, "in a region of domain");
    still_unpin(reader);
    CHECK(still_queue_barrier(queue, STILL_FOREVER) == 0);
    CHECK(next_number == MANY && still_queue_pending(queue) == 0);
    CHECK(still_reader_free(reader) == 0 && still_queue_free(queue) == 0);
}

static void objects(struct still_domain *domain)
{
    struct still_queue *queue = still_queue_new(domain);
    struct still_reader *reader = still_reader_new(domain);
    struct object *shared = make(1);
    struct still_protected held = still_protect(reader, &shared);
    struct object *unlinked = (struct object *)still_exchange(&shared, NULL);
    int before = destroyed();
    CHECK(still_call_object(queue, &unlinked->callback, unlinked, called) == 0);
    CHECK(still_queue_poll(queue, STILL_ALL) == 0 && destroyed() == before);
    still_release(held);
    while (still_queue_poll(queue, STILL_ALL) == 0) {
    }
    CHECK(destroyed() == before + 1);
    CHECK(still_reader_free(reader) == 0 && still_queue_free(queue) == 0);
}

static struct still_queue *own;

static void from_within(struct still_callback *callback) STILL_NOEXCEPT
{
    REFUSED(still_queue_barrier(own, STILL_FOREVER), -EDEADLK, "its own end");
    REFUSED(still_queue_pause(own), -EDEADLK, "its own queue");
    REFUSED(still_queue_free(own), -EBUSY, "its own queue");
    CHECK(still_queue_poll(own, STILL_ALL) == 0);
    CHECK(still_call(own, callback, called) == 0); /* pushed once more, with another function */
}

static void calls_in(struct still_domain *domain)
{
    own = still_queue_new(domain);
    int before = destroyed();
    CHECK(still_call(own, &make(1)->callback.callback, from_within) == 0);
    CHECK(still_queue_barrier(own, STILL_FOREVER) == 0 && still_queue_barrier(own, STILL_FOREVER) == 0);
    CHECK(destroyed() == before + 1);
    CHECK(still_queue_free(own) == 0);
}

static struct still_queue *inner;
static struct still_domain *domain_of_both;

static void frees_the_outer(struct still_callback *callback) STILL_NOEXCEPT
{
    REFUSED(still_queue_free(own), -EBUSY, "its own queue");
    REFUSED(still_queue_pause(own), -EDEADLK, "its own queue");
    called(callback);
}

static void polls_the_inner(struct still_callback *callback) STILL_NOEXCEPT
{
    CHECK(still_call(inner, &make(1)->callback.callback, frees_the_outer) == 0);
    /* The inner queue's callbacks could wait for this one, too. */
    REFUSED(still_queue_barrier(inner, STILL_FOREVER), -EDEADLK, "its own end");
    REFUSED(still_queue_pause(inner), -EDEADLK, "its own end");
    REFUSED(still_queue_run(inner), -EDEADLK, "its own end");
    REFUSED(still_synchronize(domain_of_both, STILL_FOREVER), -EDEADLK, "its own end");
    REFUSED(still_barrier(domain_of_both, STILL_FOREVER), -EDEADLK, "its own end");
    while (still_queue_poll(inner, STILL_ALL) == 0) {
    }
    called(callback);
}

static void nested(struct still_domain *domain)
{
    own = still_queue_new(domain);
    inner = still_queue_new(domain);
    domain_of_both = domain;
    int before = destroyed();
    CHECK(still_call(own, &make(1)->callback.callback, polls_the_inner) == 0);
    CHECK(still_queue_barrier(own, STILL_FOREVER) == 0 && destroyed() == before + 2);
    CHECK(still_queue_free(inner) == 0 && still_queue_free(own) == 0);
}

static void *serves(void *queue)
{
    CHECK(still_queue_run((struct still_queue *)queue) == 0);
    return NULL;
}

static void threads(struct still_domain *domain)
{
    struct still_queue *queue = still_queue_new(domain);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serves, queue) == 0);
    int before = destroyed();
    for (int i = 0; i < MANY; i++)
        CHECK(still_call(queue, &make(i)->callback.callback, called) == 0);
    CHECK(still_queue_barrier(queue, STILL_FOREVER) == 0 && destroyed() == before + MANY);
    CHECK(still_queue_pause(queue) == 0);
    CHECK(still_call(queue, &make(1)->callback.callback, called) == 0);
    CHECK(still_synchronize(domain, STILL_FOREVER) == 0);
    CHECK(destroyed() == before + MANY); /* no thread has called it */

    /* A child has one thread. Callbacks that were queued before are also called there. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(still_reset_after_fork(domain) == 0 && still_queue_reset_after_fork(queue) == 0);
        CHECK(still_queue_barrier(queue, STILL_FOREVER) == 0 && destroyed() == before + MANY + 1);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    CHECK(still_queue_resume(queue) == 0);
    CHECK(still_queue_barrier(queue, STILL_FOREVER) == 0 && destroyed() == before + MANY + 1);
    CHECK(still_queue_stop(queue) == 0);
    CHECK(pthread_join(thread, NULL) == 0);

    /* The pending callbacks pass to the domain. */
    CHECK(still_call(queue, &make(1)->callback.callback, called) == 0);
    CHECK(still_queue_free(queue) == 0);
    CHECK(still_barrier(domain, STILL_FOREVER) == 0 && destroyed() == before + MANY + 2);
}

static void *waits_in_vain(void *queue)
{
    REFUSED(still_queue_barrier((struct still_queue *)queue, 1000000), -ETIMEDOUT, "not yet freed");
    REFUSED(still_queue_resume((struct still_queue *)queue), -EPERM, "paused by another thread");
    return NULL;
}

static struct still_domain *held_up;
static pthread_barrier_t inside;

static void *stays_inside(void *unused)
{
    struct still_reader *reader = still_reader_new(held_up);
    still_pin(reader);
    pthread_barrier_wait(&inside);
    pthread_barrier_wait(&inside);
    still_unpin(reader);
    CHECK(still_reader_free(reader) == 0);
    return unused;
}

/* A barrier ends at its limit, and names the reader that holds it up. A thread that has paused the queue would wait for itself. */
static void in_time(struct still_domain *domain)
{
    struct still_queue *queue = still_queue_new(domain);
    struct still_qsbr *online = still_qsbr_new(domain);
    REFUSED(still_queue_barrier(queue, 1000000), -EDEADLK, "QSBR");
    CHECK(still_offline(online) == 0);
    CHECK(still_queue_barrier(queue, 0) == 0 || still_queue_barrier(queue, STILL_FOREVER) == 0);
    CHECK(still_queue_pause(queue) == 0);
    REFUSED(still_queue_barrier(queue, STILL_FOREVER), -EDEADLK, "paused");
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waits_in_vain, queue) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(still_queue_resume(queue) == 0 && still_queue_barrier(queue, STILL_FOREVER) == 0);
    REFUSED(still_queue_barrier(queue, -2), -EINVAL, "negative");

    /* Another thread is in a region. */
    held_up = domain;
    CHECK(pthread_barrier_init(&inside, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, stays_inside, NULL) == 0);
    pthread_barrier_wait(&inside);
    REFUSED(still_queue_barrier(queue, 1000000), -ETIMEDOUT, "blocked");
    pthread_barrier_wait(&inside);
    CHECK(pthread_join(thread, NULL) == 0 && still_queue_barrier(queue, STILL_FOREVER) == 0);
    CHECK(still_qsbr_free(online) == 0 && still_queue_free(queue) == 0);
}

int main(void)
{
    struct still_domain *domain = still_domain_new(NULL);
    order(domain);
    objects(domain);
    calls_in(domain);
    nested(domain);
    threads(domain);
    in_time(domain);
    CHECK(still_domain_free(domain) == 0);
    return 0;
}
