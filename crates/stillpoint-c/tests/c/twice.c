/* Tests of STILL_CHECKED: what waits already is refused when it is given to the library again, in whatever way, and is destroyed once. */
#undef STILL_CHECKED
#define STILL_CHECKED
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* An object that can be given in each way. Its first callback has the address of the object. */
struct thing {
    struct still_object_callback first, inner;
    int destroyed;
};

static struct still_domain *domain, *other;
static struct still_reader *reader, *others_reader;
static struct still_reclaimer *reclaimer, *second, *others;
static struct still_background *background;
static struct still_queue *queue, *second_queue;

static void count(struct thing *thing)
{
    __atomic_add_fetch(&thing->destroyed, 1, __ATOMIC_SEQ_CST);
}

static int counted(const struct thing *thing)
{
    return __atomic_load_n(&thing->destroyed, __ATOMIC_SEQ_CST);
}

static void destroyed_by(void *object, void *context) STILL_NOEXCEPT
{
    CHECK(context == object || context == &domain);
    count((struct thing *)object);
}

static void first_called(struct still_callback *callback) STILL_NOEXCEPT
{
    count((struct thing *)(void *)callback);
}

static void inner_called(struct still_callback *callback) STILL_NOEXCEPT
{
    count((struct thing *)(void *)((char *)callback - offsetof(struct thing, inner)));
}

enum { WAYS = 9, INNER = 8 };

/* Gives an object to the library. */
static int give(int way, struct thing *thing)
{
    switch (way) {
    case 0:
        return still_retire(reclaimer, thing, sizeof *thing, destroyed_by, thing);
    case 1:
        return still_retire(second, thing, sizeof *thing, destroyed_by, &domain);
    case 2:
        return still_retire(others, thing, sizeof *thing, destroyed_by, thing);
    case 3:
        return still_domain_retire(domain, thing, sizeof *thing, destroyed_by, &domain);
    case 4:
        return still_submit(background, thing, sizeof *thing, destroyed_by, thing);
    case 5:
        return still_call(queue, &thing->first.callback, first_called);
    case 6:
        return still_call(second_queue, &thing->first.callback, first_called);
    case 7:
        return still_call_object(queue, &thing->first, thing, first_called);
    default:
        return still_call_object(queue, &thing->inner, thing, inner_called);
    }
}

/* Holds up everything that is given. */
static void begin(void)
{
    still_pin(reader);
    still_pin(others_reader);
}

/* Lets go, and waits until nothing waits any more. */
static void end(void)
{
    still_unpin(reader);
    still_unpin(others_reader);
    CHECK(still_flush(reclaimer, STILL_FOREVER) == 0 && still_flush(second, STILL_FOREVER) == 0);
    CHECK(still_flush(others, STILL_FOREVER) == 0 && still_barrier(domain, STILL_FOREVER) == 0);
    CHECK(still_queue_barrier(queue, STILL_FOREVER) == 0 && still_queue_barrier(second_queue, STILL_FOREVER) == 0);
    while (still_background_pending(background) > 0)
        CHECK(still_synchronize(domain, STILL_FOREVER) == 0);
}

/* Whatever the first way was, the second one is refused, and nothing is lost. Afterwards the memory may be used for another object. */
static void each_way(void)
{
    static struct thing things[WAYS];
    for (int round = 1; round <= 2; round++) {
        begin();
        for (int way = 0; way < WAYS; way++)
            CHECK(give(way, &things[way]) == 0);
        for (int way = 0; way < WAYS; way++)
            for (int again = 0; again < WAYS; again++)
                REFUSED(give(again, &things[way]), -EALREADY, "waits already");
        CHECK(still_pending(reclaimer) == 1 && still_pending(second) == 1 && still_queue_pending(queue) == 3);
        end();
        for (int way = 0; way < WAYS; way++)
            CHECK(things[way].destroyed == round);
    }
}

/* A callback that is in a queue, with another object: the callback is refused, and the object does not wait. */
static void callbacks_of_two_objects(void)
{
    static struct thing one, two;
    begin();
    CHECK(give(INNER, &one) == 0);
    REFUSED(still_call(queue, &one.inner.callback, inner_called), -EALREADY, "waits already");
    REFUSED(still_call_object(queue, &one.inner, &two, inner_called), -EALREADY, "waits already");
    CHECK(give(0, &two) == 0);
    REFUSED(still_call_object(queue, &two.inner, &one, inner_called), -EALREADY, "waits already");
    end();
    CHECK(one.destroyed == 1 && two.destroyed == 1);
}

/* What a call has refused for another reason does not wait. */
static void handed_back(void)
{
    static struct thing one, two;
    struct still_reclaimer_options options = STILL_RECLAIMER_OPTIONS_INIT;
    options.max_pending = 1;
    struct still_reclaimer *small = still_reclaimer_new(domain, &options);
    begin();
    CHECK(still_retire(small, &one, sizeof one, destroyed_by, &one) == 0);
    for (int i = 0; i < 2; i++)
        REFUSED(still_retire(small, &two, sizeof two, destroyed_by, &two), -ENOSPC, "full");
    /* What waits is said first, since no room would help. */
    REFUSED(still_retire(small, &one, sizeof one, destroyed_by, &one), -EALREADY, "waits already");
    REFUSED(still_retire(reclaimer, &two, sizeof two, NULL, NULL), -EINVAL, "without a destructor");
    REFUSED(still_call_object(queue, &two.inner, &two, NULL), -EINVAL, "NULL");
    REFUSED(still_retire(reclaimer, &two, SIZE_MAX, destroyed_by, &two), -EINVAL, "larger");
    CHECK(give(INNER, &two) == 0);
    CHECK(still_reclaimer_free(small) == 0);
    /* It passed to the domain, and waits there. */
    REFUSED(give(0, &one), -EALREADY, "waits already");
    end();
    CHECK(one.destroyed == 1 && two.destroyed == 1);
}

static void destroyed_again(void *object, void *context) STILL_NOEXCEPT
{
    count((struct thing *)object);
    if (context != NULL)
        CHECK(still_retire(reclaimer, object, 1, destroyed_again, NULL) == 0);
}

static void called_again(struct still_callback *callback) STILL_NOEXCEPT
{
    struct thing *thing = (struct thing *)(void *)((char *)callback - offsetof(struct thing, inner));
    count(thing);
    CHECK(still_call_object(queue, &thing->inner, thing, inner_called) == 0);
}

/* From its destructor on, or its callback, an object is the program's again. */
static void from_within(void)
{
    static struct thing one, two;
    CHECK(still_retire(reclaimer, &one, sizeof one, destroyed_again, &one) == 0);
    CHECK(still_call_object(queue, &two.inner, &two, called_again) == 0);
    for (int i = 0; i < 2; i++) {
        begin();
        end();
    }
    CHECK(one.destroyed == 2 && two.destroyed == 2);
}

/* More than there are chains, so that most chains have several. */
static void many(void)
{
    enum { MANY = 200000 };
    struct thing *things = (struct thing *)calloc(MANY, sizeof *things);
    CHECK(things != NULL);
    begin();
    for (int i = 0; i < MANY; i++)
        CHECK(give(3 + i % 2, &things[i]) == 0);
    for (int i = 0; i < MANY; i++)
        CHECK(give(i % WAYS, &things[i]) == -EALREADY);
    end();
    for (int i = 0; i < MANY; i++)
        CHECK(counted(&things[i]) == 1);
    free(things);
}

enum { THREADS = 4, ROUNDS = 2000 };

static pthread_barrier_t meeting;
static struct thing contested[ROUNDS];
static int given[ROUNDS];

static void *contends(void *unused)
{
    for (int round = 0; round < ROUNDS; round++) {
        if (round % 100 == 0)
            pthread_barrier_wait(&meeting);
        int answer = give(3 + round % 2, &contested[round]);
        CHECK(answer == 0 || answer == -EALREADY);
        if (answer == 0)
            __atomic_add_fetch(&given[round], 1, __ATOMIC_SEQ_CST);
    }
    return unused;
}

/* Of several threads that give the same object, one succeeds. */
static void threads(void)
{
    pthread_t all[THREADS];
    CHECK(pthread_barrier_init(&meeting, NULL, THREADS) == 0);
    begin();
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&all[i], NULL, contends, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
    end();
    for (int round = 0; round < ROUNDS; round++)
        CHECK(given[round] == 1 && contested[round].destroyed == 1);
}

static int is_over;

static void *gives(void *unused)
{
    static struct thing thing;
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
        CHECK(give(2, &thing) == 0);
        for (int i = 0; i < 100; i++)
            CHECK(give(2, &thing) == -EALREADY);
        CHECK(still_flush(others, STILL_FOREVER) == 0);
    }
    return unused;
}

/* A child of a fork gives and destroys objects, although the parent has forked while another thread gave some. */
static void forks(void)
{
    static struct thing things[2];
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, gives, NULL) == 0);
    for (int i = 0; i < 300; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(30);
            CHECK(still_reset_after_fork(domain) == 0);
            for (int each = 0; each < 2; each++) {
                CHECK(give(3, &things[each]) == 0);
                REFUSED(give(0, &things[each]), -EALREADY, "waits already");
            }
            CHECK(still_barrier(domain, STILL_FOREVER) == 0);
            CHECK(things[0].destroyed == 1 && things[1].destroyed == 1);
            _exit(0);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(void)
{
    domain = still_domain_new(NULL);
    other = still_domain_new(NULL);
    reader = still_reader_new(domain);
    others_reader = still_reader_new(other);
    reclaimer = still_reclaimer_new(domain, NULL);
    second = still_reclaimer_new(domain, NULL);
    others = still_reclaimer_new(other, NULL);
    background = still_background_new(domain, NULL);
    queue = still_queue_new(domain);
    second_queue = still_queue_new(domain);
    each_way();
    callbacks_of_two_objects();
    handed_back();
    from_within();
    many();
    threads();
    forks();
    CHECK(still_background_free(background, STILL_FOREVER) == 0);
    CHECK(still_queue_free(queue) == 0 && still_queue_free(second_queue) == 0);
    CHECK(still_reclaimer_free(reclaimer) == 0 && still_reclaimer_free(second) == 0 && still_reclaimer_free(others) == 0);
    CHECK(still_reader_free(reader) == 0 && still_reader_free(others_reader) == 0);
    CHECK(still_domain_free(domain) == 0 && still_domain_free(other) == 0);
    return 0;
}
