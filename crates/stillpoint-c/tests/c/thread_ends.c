/* Threads that end without freeing their handles: the end frees them. */
#include "check.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct still_domain *domain;
static struct still_pool *pool;
static struct object *shared;
static struct still_reader *reader, *other_reader;
static struct still_qsbr *qsbr;
static struct still_local *local;

/* Makes every kind of handle: a reader in a region, with a protected load; a reader that is online; a local with objects in its cache. */
static void has_everything(void)
{
    reader = still_reader_new(domain);
    other_reader = still_reader_new(domain);
    qsbr = still_qsbr_new(domain);
    local = still_local_new(pool);
    CHECK(reader && other_reader && qsbr && local);
    still_pin(reader);
    still_pin(reader);
    CHECK(still_protect(other_reader, &shared).object == shared);
    void *object = still_local_get(local);
    CHECK(object != NULL && still_local_put(local, object) == 0);
}

static void *returns(void *unused)
{
    has_everything();
    return unused;
}

static void *exits(void *unused)
{
    has_everything();
    pthread_exit(unused);
}

static sem_t there;

static void *is_cancelled(void *unused)
{
    has_everything();
    CHECK(sem_post(&there) == 0);
    for (;;)
        pause();
    return unused;
}

static pthread_key_t key;
static int uses;

/* Key destructors may use the handles in the first two rounds. */
static void uses_all(void *round)
{
    CHECK(still_is_pinned(reader) && still_is_online(qsbr) == 1);
    CHECK(still_synchronize(domain, STILL_FOREVER) == -EDEADLK);
    void *object = still_local_get(local);
    CHECK(object != NULL && still_local_put(local, object) == 0);
    uses++;
    if (round == &key)
        CHECK(pthread_setspecific(key, &uses) == 0);
}

static void *uses_at_the_end(void *unused)
{
    has_everything();
    CHECK(pthread_setspecific(key, &key) == 0);
    return unused;
}

/* A handle that the program frees is not freed again. A handle that is made in a key destructor is freed, too. */
static void makes_more(void *round)
{
    CHECK(still_reader_free(reader) == 0);
    struct still_reader *again = still_reader_new(domain);
    CHECK(again != NULL);
    still_pin(again);
    (void)round;
}

static pthread_key_t last_key;

static void *makes_more_at_the_end(void *unused)
{
    has_everything();
    CHECK(pthread_setspecific(last_key, &last_key) == 0);
    return unused;
}

static void *is_a_stranger(void *of_another_thread)
{
    REFUSED(still_reader_free((struct still_reader *)of_another_thread), -EPERM, "another thread");
    return NULL;
}

static uint64_t readers_of_main;

static void ends(void *(*function)(void *))
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, NULL) == 0);
    if (function == is_cancelled) {
        while (sem_wait(&there) != 0) {
        }
        CHECK(pthread_cancel(thread) == 0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    int before = destroyed();
    struct object *old = (struct object *)still_exchange(&shared, make(1));
    CHECK(still_domain_retire(domain, old, sizeof *old, destroy, NULL) == 0);
    CHECK(still_barrier(domain, STILL_FOREVER) == 0 && destroyed() == before + 1);
    struct still_stats stats;
    stats.size = sizeof stats;
    CHECK(still_domain_stats(domain, &stats) == 0 && stats.readers == readers_of_main);
    REFUSED(still_reader_free(reader), -EBADF, "freed");
    REFUSED(still_qsbr_free(qsbr), -EBADF, "freed");
    REFUSED(still_local_free(local), -EBADF, "freed");
}

int main(void)
{
    domain = still_domain_new(NULL);
    pool = still_pool_new(100, 64, 8, NULL);
    shared = make(1);
    CHECK(sem_init(&there, 0, 0) == 0);
    CHECK(pthread_key_create(&key, uses_all) == 0 && pthread_key_create(&last_key, makes_more) == 0);
    for (int i = 0; i < 100; i++) {
        ends(returns);
        ends(exits);
        ends(is_cancelled);
        ends(uses_at_the_end);
        ends(makes_more_at_the_end);
    }
    CHECK(uses == 200);

    /* A thread may get the stack, and so the pthread_t, of a thread that has ended. It is not mistaken for that thread. */
    struct still_reader *own = still_reader_new(domain);
    readers_of_main = 1;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, is_a_stranger, own) == 0 && pthread_join(thread, NULL) == 0);

    /* In a child, the forking thread still has its handles, and its end frees them. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(still_reset_after_fork(domain) == 0);
        still_pin(own);
        still_unpin(own);
        ends(returns);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    /* The handles of other threads are gone, also if a new reader has the memory of theirs. */
    CHECK(pthread_create(&thread, NULL, is_cancelled, NULL) == 0 && sem_wait(&there) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(still_reset_after_fork(domain) == 0);
        struct still_reader *new_ones[4];
        for (int i = 0; i < 4; i++) {
            CHECK((new_ones[i] = still_reader_new(domain)) != NULL);
            still_pin(new_ones[i]);
        }
        REFUSED(still_reader_free(reader), -EBADF, "freed");
        REFUSED(still_reader_free(other_reader), -EBADF, "freed");
        REFUSED(still_qsbr_free(qsbr), -EBADF, "freed");
        for (int i = 0; i < 4; i++) {
            CHECK(still_is_pinned(new_ones[i]));
            still_unpin(new_ones[i]);
            CHECK(still_reader_free(new_ones[i]) == 0);
        }
        /* Not by an exit, where valgrind reports what the other thread had. */
        raise(SIGKILL);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(still_reader_free(own) == 0);
    CHECK(still_pool_free(pool) == 0);
    CHECK(still_domain_free(domain) == 0);
    free(shared);
    return 0;
}
