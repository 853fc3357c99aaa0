/* Tests of the library's threads: those of queues, and those of background reclaimers. */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 1000 };

static pthread_t worker;
static char name[16];
static cpu_set_t cpus;

static void looks(struct still_callback *callback) STILL_NOEXCEPT
{
    worker = pthread_self();
    CHECK(pthread_getname_np(worker, name, sizeof name) == 0);
    CHECK(pthread_getaffinity_np(worker, sizeof cpus, &cpus) == 0);
    sigset_t set;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &set) == 0);
    CHECK(sigismember(&set, SIGTERM) == 1 && sigismember(&set, SIGSEGV) == 0);
    called(callback);
}

/* Uses three megabytes of its stack. */
static int deep(int depth)
{
    volatile char here[64 * 1024];
    here[0] = (char)depth;
    return depth == 0 ? here[0] : deep(depth - 1) + here[0];
}

static void goes_deep(struct still_callback *callback) STILL_NOEXCEPT
{
    CHECK(deep(48) > 0);
    called(callback);
}

static void destroys_deep(void *object, void *context) STILL_NOEXCEPT
{
    CHECK(deep(48) > 0);
    destroy(object, context);
}

static void a_thread_of_its_own(struct still_domain *domain)
{
    struct still_queue *queue = still_queue_new(domain);
    /* The thread inherits the affinity. */
    cpu_set_t before, one;
    CHECK(pthread_getaffinity_np(pthread_self(), sizeof before, &before) == 0);
    int cpu = 0;
    while (!CPU_ISSET((size_t)cpu, &before))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    CHECK(pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0);
    struct still_thread_options options = STILL_THREAD_OPTIONS_INIT;
    options.name = "frees-flows";
    options.stack_size = 8 << 20;
    CHECK(still_queue_start(queue, &options) == 0);
    CHECK(pthread_setaffinity_np(pthread_self(), sizeof before, &before) == 0);
    REFUSED(still_queue_start(queue, NULL), -EALREADY, "already");

    int count = destroyed();
    CHECK(still_call(queue, &make(1)->callback.callback, looks) == 0);
    CHECK(still_call(queue, &make(1)->callback.callback, goes_deep) == 0);
    for (int i = 0; i < MANY; i++)
        CHECK(still_call(queue, &make(1)->callback.callback, called) == 0);
    CHECK(still_queue_barrier(queue, STILL_FOREVER) == 0 && destroyed() == count + MANY + 2);
    CHECK(!pthread_equal(worker, pthread_self()) && strcmp(name, "frees-flows") == 0);
    CHECK(CPU_EQUAL(&cpus, &one));

    /* Freeing does not wait for readers: the callbacks that they hold up pass to the domain. */
    struct still_reader *reader = still_reader_new(domain);
    still_pin(reader);
    CHECK(still_call(queue, &make(1)->callback.callback, called) == 0);
    CHECK(still_queue_free(queue) == 0);
    CHECK(destroyed() == count + MANY + 2);
    still_unpin(reader);
    CHECK(still_barrier(domain, STILL_FOREVER) == 0 && destroyed() == count + MANY + 3);
    CHECK(still_reader_free(reader) == 0);
}

/* A thread that cannot be started is an error. The queue stays usable. */
static void none_available(struct still_domain *domain)
{
    struct still_queue *queue = still_queue_new(domain);
    struct still_thread_options options = STILL_THREAD_OPTIONS_INIT;
    options.stack_size = (size_t)1 << 46;
    REFUSED(still_queue_start(queue, &options), -EAGAIN, "could not be started");
    options.stack_size = SIZE_MAX;
    REFUSED(still_queue_start(queue, &options), -EINVAL, "a stack has at most");
    struct still_reclaimer_options reclaimer = STILL_RECLAIMER_OPTIONS_INIT;
    reclaimer.stack_size = (size_t)1 << 46;
    CHECK(still_background_new(domain, &reclaimer) == NULL && errno == EAGAIN);
    int count = destroyed();
    CHECK(still_call(queue, &make(1)->callback.callback, called) == 0);
    CHECK(still_queue_start(queue, NULL) == 0);
    CHECK(still_queue_barrier(queue, STILL_FOREVER) == 0 && destroyed() == count + 1);
    /* A stopped thread ends by itself. The queue can still be freed. */
    CHECK(still_queue_stop(queue) == 0 && still_queue_free(queue) == 0);
}

static void idle_ones(struct still_domain *domain)
{
    static struct still_queue *queues[64];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 64; i++) {
            queues[i] = still_queue_new(domain);
            CHECK(still_queue_start(queues[i], NULL) == 0);
        }
        for (int i = 0; i < 64; i++)
            CHECK((round == 0 || still_queue_pause(queues[i]) == 0) && still_queue_free(queues[i]) == 0);
    }
}

static struct still_queue *own;

static void frees_its_queue(struct still_callback *callback) STILL_NOEXCEPT
{
    REFUSED(still_queue_free(own), -EBUSY, "its own queue");
    REFUSED(still_queue_start(own, NULL), -EALREADY, "already");
    called(callback);
}

/* A child does not have its parent's thread: it starts another one. */
static void forked(struct still_domain *domain)
{
    own = still_queue_new(domain);
    CHECK(still_queue_start(own, NULL) == 0);
    int count = destroyed();
    CHECK(still_call(own, &make(1)->callback.callback, frees_its_queue) == 0);
    CHECK(still_queue_barrier(own, STILL_FOREVER) == 0 && destroyed() == count + 1);
    CHECK(still_queue_pause(own) == 0);
    CHECK(still_call(own, &make(1)->callback.callback, called) == 0);
    for (int starts = 0; starts < 2; starts++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(still_reset_after_fork(domain) == 0 && still_queue_reset_after_fork(own) == 0);
            CHECK(!starts || still_queue_start(own, NULL) == 0);
            CHECK(still_queue_barrier(own, STILL_FOREVER) == 0 && destroyed() == count + 2);
            CHECK(still_queue_free(own) == 0);
            _exit(0);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(still_queue_resume(own) == 0 && still_queue_barrier(own, STILL_FOREVER) == 0);
    CHECK(destroyed() == count + 2 && still_queue_free(own) == 0);
}

static void names_itself(void *object, void *context) STILL_NOEXCEPT
{
    CHECK(pthread_getname_np(pthread_self(), name, sizeof name) == 0);
    destroy(object, context);
}

/* The options of a program that knows fewer fields, and of one that knows more. */
static void backgrounds(struct still_domain *domain)
{
    struct {
        struct still_reclaimer_options options;
        uint64_t later;
    } longer;
    memset(&longer, 0, sizeof longer);
    longer.options.size = sizeof longer;
    longer.options.stack_size = 8 << 20;
    longer.options.thread_name = "reclaims";
    struct still_background *background = still_background_new(domain, &longer.options);
    CHECK(background != NULL);
    int count = destroyed();
    CHECK(still_submit(background, make(1), sizeof(struct object), names_itself, NULL) == 0);
    CHECK(still_submit(background, make(1), sizeof(struct object), destroys_deep, NULL) == 0);
    CHECK(still_background_free(background, STILL_FOREVER) == 0);
    CHECK(destroyed() == count + 2 && strcmp(name, "reclaims") == 0);
    longer.later = 1;
    CHECK(still_background_new(domain, &longer.options) == NULL && errno == EINVAL);
    CHECK(strstr(still_error(), "does not know") != NULL);

    /* The first version of the struct ended before `stack_size`. The library does not read the bytes after its end. */
    longer.options.size = offsetof(struct still_reclaimer_options, stack_size);
    longer.options.stack_size = SIZE_MAX;
    background = still_background_new(domain, &longer.options);
    CHECK(background != NULL && still_background_free(background, STILL_FOREVER) == 0);
    longer.options.size -= 8;
    CHECK(still_background_new(domain, &longer.options) == NULL && errno == EINVAL);

    /* An answer fills the known fields, and sets the rest to 0. */
    struct {
        struct still_stats stats;
        uint64_t later, beyond;
    } answer;
    memset(&answer, 0xff, sizeof answer);
    answer.stats.size = offsetof(__typeof__(answer), beyond);
    CHECK(still_domain_stats(domain, &answer.stats) == 0);
    CHECK(answer.stats.pending == 0 && answer.later == 0 && answer.beyond == UINT64_MAX);
    CHECK(answer.stats.size == offsetof(__typeof__(answer), beyond));
}

static pthread_key_t at_end;
static struct still_background *ending_background;
static struct still_queue *ending_queue;
static int ends;

/* Runs when a thread of the library ends, after its last work: its handle is freed later. */
static void uses_its_handle(void *which)
{
    for (int turn = 0; turn < MANY; turn++) {
        CHECK((which == &ending_queue ? still_queue_pending(ending_queue) : still_background_pending(ending_background)) >= 0);
        sched_yield();
    }
    ends++;
}

static void marks_its_thread(void *object, void *context) STILL_NOEXCEPT
{
    CHECK(pthread_setspecific(at_end, &ending_background) == 0);
    destroy(object, context);
}

static void marks_the_queues(struct still_callback *callback) STILL_NOEXCEPT
{
    CHECK(pthread_setspecific(at_end, &ending_queue) == 0);
    called(callback);
}

static void uses_until_the_end(struct still_domain *domain)
{
    CHECK(pthread_key_create(&at_end, uses_its_handle) == 0);
    ending_background = still_background_new(domain, NULL);
    CHECK(still_submit(ending_background, make(1), sizeof(struct object), marks_its_thread, NULL) == 0);
    CHECK(still_background_free(ending_background, STILL_FOREVER) == 0);
    CHECK(ends == 1);
    ending_queue = still_queue_new(domain);
    CHECK(still_queue_start(ending_queue, NULL) == 0);
    CHECK(still_call(ending_queue, &make(1)->callback.callback, marks_the_queues) == 0);
    CHECK(still_queue_barrier(ending_queue, STILL_FOREVER) == 0);
    CHECK(still_queue_free(ending_queue) == 0);
    CHECK(ends == 2);
    CHECK(pthread_key_delete(at_end) == 0);
}

int main(void)
{
    struct still_domain *domain = still_domain_new(NULL);
    a_thread_of_its_own(domain);
    none_available(domain);
    idle_ones(domain);
    forked(domain);
    backgrounds(domain);
    uses_until_the_end(domain);
    CHECK(still_domain_free(domain) == 0);
    return 0;
}
