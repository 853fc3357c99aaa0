/* Without memory, calls fail with ENOMEM or do without: no call ends the process. Each scenario runs again and again, in processes of its
 * own: at first its first request for memory is refused, then its second one, and so on, until there are no more. */
#include "check.h"
#include "refusing.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

/* Set for each run. */
static int first, all;

/* Begins the calls that get no memory. */
static void begin(void)
{
    refuse_from(first, all);
}

/* Ends them. The parent learns how many requests there were between one begin and its end, at most. */
static int requests;

static void end(void)
{
    int seen = refuse_nothing();
    if (seen > requests)
        requests = seen;
}

/* What a call may fail with. */
static int is_allowed(long long error, int also)
{
    return error == ENOMEM || (also != 0 && error == also);
}

/* Makes something without memory. If that fails, it succeeds with memory. */
#define MAKES_OR(variable, call, also)                                                                     \
    do {                                                                                                   \
        begin();                                                                                           \
        (variable) = (call);                                                                               \
        int error_ = errno;                                                                                \
        const char *text_ = (variable) == NULL ? still_error() : "-";                                      \
        end();                                                                                             \
        if ((variable) == NULL) {                                                                          \
            CHECK(is_allowed(error_, also) && *text_ != '\0');                                             \
            (variable) = (call);                                                                           \
        }                                                                                                  \
        CHECK((variable) != NULL);                                                                         \
    } while (0)
#define MAKES(variable, call) MAKES_OR(variable, call, 0)

/* The same for a call that returns a number. Leaves what the first call returned in `answer`. */
static long long answer;
#define DOES_OR(call, also)                                                                                \
    do {                                                                                                   \
        begin();                                                                                           \
        answer = (long long)(call);                                                                        \
        const char *text_ = answer < 0 ? still_error() : "-";                                              \
        end();                                                                                             \
        if (answer < 0) {                                                                                  \
            CHECK(is_allowed(-answer, also) && *text_ != '\0');                                            \
            CHECK((long long)(call) >= 0);                                                                 \
        }                                                                                                  \
    } while (0)
#define DOES(call) DOES_OR(call, 0)

/* A call that fails for another reason needs no memory: it gives the same answer, whatever is refused. */
#define FAILS(call, expected)                                                                              \
    do {                                                                                                   \
        begin();                                                                                           \
        answer = (long long)(call);                                                                        \
        const char *text_ = still_error();                                                                 \
        end();                                                                                             \
        CHECK(answer == (expected) && *text_ != '\0');                                                     \
    } while (0)

static struct still_domain *domain(void)
{
    struct still_domain *made = still_domain_new(NULL);
    CHECK(made != NULL);
    return made;
}

static struct still_reader *reader(struct still_domain *of)
{
    struct still_reader *made = still_reader_new(of);
    CHECK(made != NULL);
    return made;
}

static void ignores(const struct still_stall *stall, void *context) STILL_NOEXCEPT
{
    (void)stall;
    (void)context;
}

static void domains(void)
{
    struct still_domain *made;
    MAKES(made, still_domain_new(NULL));
    CHECK(still_domain_free(made) == 0);
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    options.name = "a name that is copied, and that is longer than most";
    options.max_pending = 10;
    MAKES(made, still_domain_new(&options));
    struct still_stats stats;
    stats.size = sizeof stats;
    struct still_stall stall;
    stall.size = sizeof stall;
    DOES(still_domain_stats(made, &stats));
    DOES(still_domain_stall(made, &stall));
    begin();
    uint64_t token = still_start(made);
    end();
    CHECK(token != 0);
    DOES(still_check(made, token));
    DOES(still_wait(made, token, STILL_FOREVER));
    DOES(still_synchronize(made, STILL_FOREVER));
    DOES(still_reset_after_fork(made));
    CHECK(still_domain_free(made) == 0);
}

static void the_default_domain(void)
{
    struct still_domain *made;
    MAKES(made, still_domain_default());
    CHECK(still_domain_free(made) == 0);
}

static void readers(void)
{
    /* More than fit in a chunk. */
    enum { MANY = 70 };
    struct still_domain *of = domain();
    struct still_reader *made[MANY];
    struct still_qsbr *qsbr[MANY];
    for (int i = 0; i < MANY; i++) {
        MAKES_OR(made[i], still_reader_new(of), EAGAIN);
        MAKES_OR(qsbr[i], still_qsbr_new(of), EAGAIN);
        DOES(still_offline(qsbr[i]));
    }
    DOES(still_online(qsbr[0]));
    DOES(still_qsbr_synchronize(qsbr[0], STILL_FOREVER));
    for (int i = 0; i < MANY; i++)
        CHECK(still_reader_free(made[i]) == 0 && still_qsbr_free(qsbr[i]) == 0);
    CHECK(still_domain_free(of) == 0);
}

static void protected_loads(void)
{
    enum { MANY = 40 };
    struct still_domain *of = domain();
    struct still_reader *own = reader(of);
    struct object *objects[MANY];
    struct still_protected held[MANY];
    struct still_hold *holds[MANY];
    for (int i = 0; i < MANY; i++)
        objects[i] = make(i);
    for (int i = 0; i < MANY; i++) {
        begin();
        held[i] = still_protect(own, &objects[i]);
        end();
        CHECK(held[i].object == objects[i]);
        MAKES(holds[i], still_hold_new(of));
        struct object *found;
        DOES(still_hold_protect(holds[i], &objects[i], &found));
        CHECK(found == objects[i]);
        DOES(still_domain_retire(of, objects[i], sizeof *objects[i], destroy, NULL));
    }
    FAILS(still_barrier(of, 0), -EDEADLK);
    FAILS(still_barrier(of, STILL_FOREVER), -EDEADLK);
    for (int i = 0; i < MANY; i++) {
        still_release(held[i]);
        if (i == 0)
            FAILS(still_barrier(of, 0), -EDEADLK);
    }
    FAILS(still_barrier(of, 0), -ETIMEDOUT);
    for (int i = 0; i < MANY; i++)
        CHECK(still_hold_free(holds[i]) == 0);
    DOES(still_barrier(of, STILL_FOREVER));
    CHECK(destroyed() == MANY);
    CHECK(still_reader_free(own) == 0 && still_domain_free(of) == 0);
}

static void writers(void)
{
    enum { MANY = 100 };
    struct still_domain *of = domain();
    struct still_reclaimer *reclaimer;
    MAKES(reclaimer, still_reclaimer_new(of, NULL));
    for (int i = 0; i < MANY; i++) {
        struct object *object = make(i);
        DOES(still_retire(reclaimer, object, sizeof *object, destroy, NULL));
        /* An object that was handed back is still ours. */
        CHECK(still_pending(reclaimer) == i + 1 && object->value == i);
    }
    DOES(still_poll(reclaimer, 1));
    DOES(still_poll(reclaimer, STILL_ALL));
    DOES(still_flush(reclaimer, STILL_FOREVER));
    CHECK(destroyed() == MANY);
    for (int i = 0; i < MANY; i++) {
        struct object *object = make(i);
        DOES(still_domain_retire(of, object, sizeof *object, destroy, NULL));
    }
    DOES(still_synchronize(of, STILL_FOREVER));
    DOES(still_barrier(of, STILL_FOREVER));
    CHECK(destroyed() == 2 * MANY);
    for (int i = 0; i < MANY; i++) {
        struct object *object = make(i);
        DOES(still_retire(reclaimer, object, sizeof *object, destroy, NULL));
    }
    begin();
    int freed = still_reclaimer_free(reclaimer);
    end();
    CHECK(freed == 0 && still_barrier(of, STILL_FOREVER) == 0 && destroyed() == 3 * MANY);
    CHECK(still_domain_free(of) == 0);
}

static int threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (const struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks))
        count += task->d_name[0] != '.';
    CHECK(closedir(tasks) == 0);
    return count;
}

static void backgrounds(void)
{
    enum { MANY = 100 };
    struct still_domain *of = domain();
    struct still_background *background;
    MAKES_OR(background, still_background_new(of, NULL), EAGAIN);
    for (int i = 0; i < MANY; i++) {
        struct object *object = make(i);
        DOES(still_submit(background, object, sizeof *object, destroy, NULL));
    }
    DOES(still_background_pending(background));
    begin();
    ssize_t left = still_background_free(background, STILL_FOREVER);
    end();
    CHECK(left == 0 && destroyed() == MANY && still_domain_free(of) == 0);
    /* What failed has left no thread. */
    while (threads() > 1)
        sched_yield();
}

static void queues(void)
{
    struct still_domain *of = domain();
    struct still_queue *queue;
    MAKES(queue, still_queue_new(of));
    for (int round = 0; round < 3; round++) {
        struct object *objects[2] = {make(1), make(2)};
        DOES(still_call(queue, &objects[0]->callback.callback, called));
        DOES(still_call_object(queue, &objects[1]->callback, objects[1], called));
        if (round == 1)
            DOES_OR(still_queue_start(queue, NULL), EAGAIN);
        DOES(still_queue_barrier(queue, STILL_FOREVER));
        CHECK(destroyed() == 2 * round + 2);
        DOES(still_queue_pause(queue));
        FAILS(still_queue_barrier(queue, STILL_FOREVER), -EDEADLK);
        DOES(still_queue_resume(queue));
        FAILS(still_queue_resume(queue), -EINVAL);
    }
    DOES(still_queue_poll(queue, STILL_ALL));
    begin();
    int stopped = still_queue_stop(queue), freed = still_queue_free(queue);
    end();
    CHECK(stopped == 0 && freed == 0 && still_domain_free(of) == 0);
}

static int visit(const void *key, void *value, void *context) STILL_NOEXCEPT
{
    (void)key;
    (void)value;
    (void)context;
    return 0;
}

static void table_of(size_t bytes, size_t capacity)
{
    enum { MANY = 300 };
    struct still_domain *of = domain();
    struct still_reader *own = reader(of);
    struct still_table_options options = STILL_TABLE_OPTIONS_INIT;
    options.capacity = capacity;
    options.max_len = 1000000; /* not reached: the reason of a refusal is memory */
    struct still_table *table;
    MAKES(table, still_table_new(of, bytes, &options));
    unsigned char key[100] = {0};
    void *value = NULL;
    for (int i = 0; i < MANY; i++) {
        memcpy(key, &i, sizeof i);
        DOES(still_table_insert(table, key, &key, NULL));
        DOES(still_table_insert(table, key, &value, NULL));
        CHECK(still_table_get(table, own, key, &value) == 1);
        /* The same object by many slots, which may come from the reserve. */
        struct still_protected held[20];
        for (int j = 0; j < 20; j++) {
            begin();
            int found = still_table_protect(table, own, key, &held[j]);
            end();
            CHECK(found == 1 && held[j].object == &value);
        }
        for (int j = 0; j < 20; j++)
            still_release(held[j]);
        uint64_t hits = 0;
        begin();
        int found = still_table_protect_many(table, own, key, 1, held, &hits);
        end();
        CHECK(found == 1 && hits == 1 && held[0].object == &value);
        still_release(held[0]);
    }
    for (int i = MANY; i < 2 * MANY; i++) {
        memcpy(key, &i, sizeof i);
        DOES(still_table_add(table, own, key, NULL, NULL));
        FAILS(still_table_add(table, own, key, NULL, NULL), -EEXIST);
    }
    CHECK(still_table_len(table) == 2 * MANY);
    DOES(still_table_each(table, own, visit, NULL));
    for (int i = 0; i < MANY; i++) {
        memcpy(key, &i, sizeof i);
        DOES(still_table_remove(table, key, NULL));
        CHECK(answer == 1);
    }
    DOES(still_table_poll(table));
    begin();
    int freed = still_table_free(table);
    end();
    CHECK(freed == 0 && still_reader_free(own) == 0 && still_domain_free(of) == 0);
}

static void small_tables(void)
{
    table_of(8, 0);
}

static void tables_of_long_keys(void)
{
    table_of(100, 0);
}

static void large_tables(void)
{
    table_of(16, 100000);
}

static void wheels(void)
{
    struct still_wheel *wheel;
    MAKES(wheel, still_wheel_new(7));
    CHECK(still_wheel_free(wheel) == 0);
}

static void pools(void)
{
    enum { MANY = 2000 };
    static void *objects[MANY];
    struct still_pool *pool;
    struct still_pool_options options = STILL_POOL_OPTIONS_INIT;
    options.max_objects = MANY;
    options.max_locals = 1000;
    options.pages = STILL_PAGES_SMALL;
    options.hardened = 1;
    MAKES(pool, still_pool_new(100, 64, 8, &options));
    struct still_local *local, *other;
    MAKES_OR(local, still_local_new(pool), EAGAIN);
    MAKES_OR(other, still_local_new(pool), EAGAIN);
    int got = 0;
    for (; got < MANY; got++)
        MAKES(objects[got], still_local_get(got % 2 ? local : other));
    FAILS(still_local_put(local, &got), -EINVAL);
    struct still_pool_info info;
    info.size = sizeof info;
    DOES(still_pool_stats(pool, &info));
    struct still_pool_calls calls;
    calls.size = sizeof calls;
    DOES(still_pool_call_stats(pool, &calls));
    DOES(still_local_put_many(local, objects, MANY));
    CHECK(still_local_free(local) == 0 && still_local_free(other) == 0 && still_pool_free(pool) == 0);
}

static pthread_barrier_t meeting;

static void *reads(void *of)
{
    struct still_reader *own = reader((struct still_domain *)of);
    still_pin(own);
    pthread_barrier_wait(&meeting);
    pthread_barrier_wait(&meeting);
    still_unpin(own);
    pthread_barrier_wait(&meeting);
    pthread_barrier_wait(&meeting);
    return NULL;
}

static void waits(void)
{
    struct still_domain *of = domain();
    struct still_reader *own = reader(of);
    still_pin(own);
    FAILS(still_synchronize(of, STILL_FOREVER), -EDEADLK);
    FAILS(still_wait(of, 1000, STILL_FOREVER), -EINVAL);
    FAILS(still_check(of, 1000), -EINVAL);
    still_unpin(own);
    CHECK(still_reader_free(own) == 0);
    pthread_t thread;
    pthread_barrier_init(&meeting, NULL, 2);
    CHECK(pthread_create(&thread, NULL, reads, of) == 0);
    pthread_barrier_wait(&meeting);
    FAILS(still_synchronize(of, 0), -ETIMEDOUT);
    FAILS(still_wait(of, still_start(of), 1000), -ETIMEDOUT);
    struct still_stall stall;
    stall.size = sizeof stall;
    DOES(still_domain_stall(of, &stall));
    CHECK(answer == 1);
    pthread_barrier_wait(&meeting);
    pthread_barrier_wait(&meeting);
    CHECK(still_start(of) > 0);
    struct still_stats stats;
    stats.size = sizeof stats;
    CHECK(still_domain_stats(of, &stats) == 0);
    DOES(still_domain_silent(of, ignores, NULL)); /* the thread has left its region, and waits */
    CHECK(answer == (long long)stats.silent || answer < 0);
    pthread_barrier_wait(&meeting);
    CHECK(pthread_join(thread, NULL) == 0 && still_domain_free(of) == 0);
}

/* A program that tries again and again does not use up what the library has in reserve. */
static void again_and_again(void)
{
    if (!all || first > 3)
        return;
    /* In a domain of its own, what was left to the domain stays there. */
    struct still_domain *of = domain(), *apart = domain();
    struct still_reader *own = reader(of);
    struct still_reclaimer *reclaimer = still_reclaimer_new(of, NULL);
    struct still_background *background = still_background_new(of, NULL);
    struct still_queue *queue = still_queue_new(of);
    struct still_table *table = still_table_new(of, 100, NULL);
    struct still_pool *pool = still_pool_new(10, 8, 8, NULL);
    CHECK(reclaimer != NULL && background != NULL && queue != NULL && table != NULL && pool != NULL);
    unsigned char key[100] = {0};
    int object = 0, kept = 0;
    /* Nothing is freed meanwhile. */
    still_pin(own);
    for (int i = 0; i < 1000; i++) {
        memcpy(key, &i, sizeof i);
        struct object *objects[3] = {make(0), make(1), make(2)};
        begin();
        struct still_domain *made = still_domain_new(NULL);
        struct still_reader *reads = still_reader_new(of);
        struct still_qsbr *reports = still_qsbr_new(of);
        struct still_reclaimer *retires = still_reclaimer_new(of, NULL);
        struct still_hold *holds = still_hold_new(of);
        struct still_queue *calls = still_queue_new(of);
        struct still_table *finds = still_table_new(of, 8, NULL);
        struct still_wheel *turns = still_wheel_new(0);
        struct still_pool *gives = still_pool_new(10, 8, 8, NULL);
        struct still_local *takes = still_local_new(pool);
        int answers[3] = {still_retire(reclaimer, objects[0], 8, destroy, NULL),
                          still_domain_retire(apart, objects[1], 8, destroy, NULL),
                          still_submit(background, objects[2], 8, destroy, NULL)};
        int inserted = still_table_insert(table, key, &object, NULL);
        int paused = still_queue_pause(queue);
        end();
        if (all && first == 0)
            CHECK(made == NULL && reads == NULL && reports == NULL && retires == NULL && holds == NULL && calls == NULL &&
                  finds == NULL && turns == NULL && gives == NULL);
        for (int at = 0; at < 3; at++) {
            CHECK(answers[at] == 0 || answers[at] == -ENOMEM);
            if (answers[at] == 0)
                kept++;
            else
                free(objects[at]);
        }
        CHECK(inserted == 0 || inserted == -ENOMEM);
        CHECK(paused == 0 ? still_queue_resume(queue) == 0 : paused == -ENOMEM);
        if (made != NULL)
            CHECK(still_domain_free(made) == 0);
        if (reads != NULL)
            CHECK(still_reader_free(reads) == 0);
        if (reports != NULL)
            CHECK(still_qsbr_free(reports) == 0);
        if (retires != NULL)
            CHECK(still_reclaimer_free(retires) == 0);
        if (holds != NULL)
            CHECK(still_hold_free(holds) == 0);
        if (calls != NULL)
            CHECK(still_queue_free(calls) == 0);
        if (finds != NULL)
            CHECK(still_table_free(finds) == 0);
        if (turns != NULL)
            CHECK(still_wheel_free(turns) == 0);
        if (gives != NULL)
            CHECK(still_pool_free(gives) == 0);
        if (takes != NULL)
            CHECK(still_local_free(takes) == 0);
    }
    still_unpin(own);
    CHECK(still_background_free(background, STILL_FOREVER) == 0 && still_flush(reclaimer, STILL_FOREVER) == 0);
    CHECK(still_barrier(apart, STILL_FOREVER) == 0 && destroyed() == kept && still_domain_free(apart) == 0);
    CHECK(still_reclaimer_free(reclaimer) == 0 && still_queue_free(queue) == 0 && still_table_free(table) == 0);
    CHECK(still_pool_free(pool) == 0 && still_reader_free(own) == 0 && still_domain_free(of) == 0);
}

static void hear(const char *report, void *context) STILL_NOEXCEPT
{
    (void)report;
    (void)context;
}

static void hooks(void)
{
    begin();
    still_on_report(hear, NULL);
    end();
}

/* Misuse is refused without a single request. */
static void misuse(void)
{
    struct still_domain *of = domain();
    struct still_reader *own = reader(of);
    int object;
    /* Here a request would be a failure of the test, whatever is refused. */
    CHECK(still_wait(NULL, 1, 0) == -EINVAL && *still_error() != '\0');
#define NO_REQUEST(call, expected)                                                                         \
    do {                                                                                                   \
        refuse_from(0, 1);                                                                                 \
        answer = (long long)(call);                                                                        \
        const char *text_ = still_error();                                                                 \
        int requests_seen_ = refuse_nothing();                                                             \
        CHECK(answer == (expected) && requests_seen_ == 0 && *text_ != '\0');                              \
    } while (0)
    NO_REQUEST(still_domain_free(NULL), -EINVAL);
    NO_REQUEST(still_domain_stats(of, NULL), -EINVAL);
    NO_REQUEST(still_domain_stall(of, NULL), -EINVAL);
    NO_REQUEST(still_domain_silent(of, NULL, NULL), -EINVAL);
    NO_REQUEST(still_check(of, 1000), -EINVAL);
    NO_REQUEST(still_wait(of, 1000, 0), -EINVAL);
    NO_REQUEST(still_wait(of, still_start(of), -7), -EINVAL);
    NO_REQUEST(still_synchronize(NULL, 0), -EINVAL);
    NO_REQUEST(still_synchronize((struct still_domain *)(void *)own, 0), -EINVAL);
    NO_REQUEST(still_barrier(of, -2), -EINVAL);
    NO_REQUEST(still_reset_after_fork(NULL), -EINVAL);
    NO_REQUEST(still_reader_free(NULL), -EINVAL);
    NO_REQUEST(still_qsbr_free(NULL), -EINVAL);
    NO_REQUEST(still_offline(NULL), -EINVAL);
    NO_REQUEST(still_online(NULL), -EINVAL);
    NO_REQUEST(still_is_online(NULL), -EINVAL);
    NO_REQUEST(still_qsbr_synchronize(NULL, 0), -EINVAL);
    NO_REQUEST(still_hold_release(NULL), -EINVAL);
    NO_REQUEST(still_hold_free(NULL), -EINVAL);
    NO_REQUEST(still_reclaimer_free(NULL), -EINVAL);
    NO_REQUEST(still_retire(NULL, &object, 4, destroy, NULL), -EINVAL);
    NO_REQUEST(still_poll(NULL, 1), -EINVAL);
    NO_REQUEST(still_flush(NULL, 0), -EINVAL);
    NO_REQUEST(still_pending(NULL), -EINVAL);
    NO_REQUEST(still_domain_retire(of, NULL, 1, destroy, NULL), -EINVAL);
    NO_REQUEST(still_domain_retire(of, &object, SIZE_MAX, destroy, NULL), -EINVAL);
    NO_REQUEST(still_submit(NULL, &object, 4, destroy, NULL), -EINVAL);
    NO_REQUEST(still_background_pending(NULL), -EINVAL);
    NO_REQUEST(still_background_free(NULL, 0), -EINVAL);
    NO_REQUEST(still_queue_free(NULL), -EINVAL);
    NO_REQUEST(still_queue_start(NULL, NULL), -EINVAL);
    NO_REQUEST(still_call(NULL, NULL, called), -EINVAL);
    NO_REQUEST(still_queue_poll(NULL, 1), -EINVAL);
    NO_REQUEST(still_queue_run(NULL), -EINVAL);
    NO_REQUEST(still_queue_stop(NULL), -EINVAL);
    NO_REQUEST(still_queue_barrier(NULL, 0), -EINVAL);
    NO_REQUEST(still_queue_pause(NULL), -EINVAL);
    NO_REQUEST(still_queue_resume(NULL), -EINVAL);
    NO_REQUEST(still_queue_reset_after_fork(NULL), -EINVAL);
    NO_REQUEST(still_queue_pending(NULL), -EINVAL);
    NO_REQUEST(still_table_free(NULL), -EINVAL);
    NO_REQUEST(still_table_get(NULL, own, &object, NULL), -EINVAL);
    struct still_protected held;
    uint64_t hits;
    NO_REQUEST(still_table_protect(NULL, own, &object, &held), -EINVAL);
    NO_REQUEST(still_table_protect_many(NULL, own, &object, 1, &held, &hits), -EINVAL);
    NO_REQUEST(still_table_insert(NULL, &object, NULL, NULL), -EINVAL);
    NO_REQUEST(still_table_add(NULL, own, &object, NULL, NULL), -EINVAL);
    NO_REQUEST(still_table_remove(NULL, &object, NULL), -EINVAL);
    NO_REQUEST(still_table_remove_if(NULL, own, &object, NULL), -EINVAL);
    NO_REQUEST(still_table_len(NULL), -EINVAL);
    NO_REQUEST(still_table_poll(NULL), -EINVAL);
    NO_REQUEST(still_table_pending(NULL), -EINVAL);
    NO_REQUEST(still_table_each(NULL, own, visit, NULL), -EINVAL);
    NO_REQUEST(still_wheel_free(NULL), -EINVAL);
    NO_REQUEST(still_wheel_advance(NULL, 1), -EINVAL);
    NO_REQUEST(still_wheel_len(NULL), -EINVAL);
    NO_REQUEST(still_pool_free(NULL), -EINVAL);
    NO_REQUEST(still_local_free(NULL), -EINVAL);
    NO_REQUEST(still_local_put(NULL, &object), -EINVAL);
    NO_REQUEST(still_pool_stats(NULL, NULL), -EINVAL);
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;
    options.size = 8;
    NO_REQUEST(still_domain_new(&options) == NULL, 1);
    CHECK(still_reader_free(own) == 0);
    NO_REQUEST(still_reader_free(own), -EBADF);
    CHECK(still_domain_free(of) == 0);
}

#ifdef STILL_CHECKED
/* What is given twice is refused without a request for memory. */
static void twice(void)
{
    struct still_domain *of = domain();
    struct still_reclaimer *reclaimer = still_reclaimer_new(of, NULL);
    struct still_background *background = still_background_new(of, NULL);
    struct still_queue *queue = still_queue_new(of);
    struct still_reader *own = reader(of);
    struct object *one = make(1), *two = make(2);
    still_pin(own);
    CHECK(still_retire(reclaimer, one, sizeof *one, destroy, NULL) == 0);
    CHECK(still_call_object(queue, &two->callback, two, called) == 0);
    /* The thread gets its memory for texts. */
    REFUSED(still_retire(reclaimer, one, sizeof *one, destroy, NULL), -EALREADY, "waits already");
    NO_REQUEST(still_retire(reclaimer, one, sizeof *one, destroy, NULL), -EALREADY);
    NO_REQUEST(still_domain_retire(of, two, sizeof *two, destroy, NULL), -EALREADY);
    NO_REQUEST(still_submit(background, one, sizeof *one, destroy, NULL), -EALREADY);
    NO_REQUEST(still_call(queue, &one->callback.callback, called), -EALREADY);
    NO_REQUEST(still_call_object(queue, &two->callback, two, called), -EALREADY);
    still_unpin(own);
    DOES(still_flush(reclaimer, STILL_FOREVER));
    DOES(still_queue_barrier(queue, STILL_FOREVER));
    CHECK(destroyed() == 2);
    /* Without memory, nothing is noted. What is noted leaves the reserve to others, such as the barrier. */
    enum { MANY = 1000 };
    struct object *many[MANY];
    for (int i = 0; i < MANY; i++)
        many[i] = make(i);
    refuse_from(0, 1);
    for (int i = 0; i < MANY; i++)
        CHECK(still_call(queue, &many[i]->callback.callback, called) == 0);
    CHECK(still_queue_barrier(queue, STILL_FOREVER) == 0);
    refuse_nothing();
    CHECK(destroyed() == 2 + MANY);
    CHECK(still_background_free(background, STILL_FOREVER) == 0 && still_queue_free(queue) == 0);
    CHECK(still_reclaimer_free(reclaimer) == 0 && still_reader_free(own) == 0 && still_domain_free(of) == 0);
}
#endif

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"domains", domains},
    {"the default domain", the_default_domain},
    {"readers", readers},
    {"protected loads", protected_loads},
    {"writers", writers},
    {"backgrounds", backgrounds},
    {"queues", queues},
    {"small tables", small_tables},
    {"tables of long keys", tables_of_long_keys},
    {"large tables", large_tables},
    {"wheels", wheels},
    {"pools", pools},
    {"waits", waits},
    {"again and again", again_and_again},
    {"hooks", hooks},
    {"misuse", misuse},
#ifdef STILL_CHECKED
    {"twice", twice},
#endif
};

int main(void)
{
    for (size_t at = 0; at < sizeof scenarios / sizeof *scenarios; at++) {
        int runs[2] = {0, 0};
        for (all = 0; all < 2; all++) {
            for (first = 0;; first++, runs[all]++) {
                int ends[2];
                CHECK(pipe(ends) == 0);
                pid_t child = fork();
                CHECK(child >= 0);
                if (child == 0) {
                    alarm(30);
                    scenarios[at].run();
                    CHECK(write(ends[1], &requests, sizeof requests) == (ssize_t)sizeof requests);
                    _exit(0);
                }
                int status;
                CHECK(waitpid(child, &status, 0) == child);
                if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                    fprintf(stderr, "%s: without request %d%s: status %x\n", scenarios[at].name, first,
                            all ? " and all later ones" : "", (unsigned)status);
                    return 1;
                }
                CHECK(read(ends[0], &requests, sizeof requests) == (ssize_t)sizeof requests);
                CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
                if (first >= requests)
                    break;
                requests = 0;
            }
            requests = 0;
        }
        printf("%s: %d and %d runs\n", scenarios[at].name, runs[0], runs[1]);
    }
    return 0;
}
