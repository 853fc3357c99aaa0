/* The first use of a pool's cache takes memory: a call that gets none changes nothing, and no thread waits for another one there. */
#include "check.h"
#include "refusing.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* Large pools have caches of 512 objects, whose addresses take 6 KiB. */
enum { OBJECTS = 10000, CACHE_BYTES = 4096 };

static struct still_pool *made(void)
{
    struct still_pool *pool = still_pool_new(OBJECTS, 64, 64, NULL);
    CHECK(pool != NULL);
    return pool;
}

static void uses(struct still_local *local)
{
    void *object = still_local_get(local);
    CHECK(object != NULL && still_local_put(local, object) == 0);
}

static size_t most;

static int is_large(size_t bytes)
{
    return bytes > most;
}

/* The cache is refused, and then also what it belongs to. More often than the library's reserve would last. */
static void refused(void)
{
    struct still_pool *pool = made();
    const size_t limits[2] = {CACHE_BYTES, 512};
    for (size_t limit = 0; limit < 2; limit++) {
        most = limits[limit];
        refuse_by(is_large);
        for (int i = 0; i < 1000; i++) {
            struct still_local *local = still_local_new(pool);
            CHECK(local == NULL && errno == ENOMEM);
        }
        refuse_by(NULL);
    }
    struct still_local *local = still_local_new(pool);
    CHECK(local != NULL);
    uses(local);
    CHECK(still_local_free(local) == 0 && still_pool_free(pool) == 0);
}

static pthread_barrier_t meeting;
/* Whether the thread is to wait within its next request for a cache. */
static __thread int waits;

static int is_held_up(size_t bytes)
{
    if (bytes > CACHE_BYTES && waits) {
        waits = 0;
        pthread_barrier_wait(&meeting);
        pthread_barrier_wait(&meeting);
    }
    return 0;
}

static void *makes(void *pool)
{
    waits = 1;
    struct still_local *local = still_local_new((struct still_pool *)pool);
    CHECK(local != NULL);
    uses(local);
    CHECK(still_local_free(local) == 0);
    return NULL;
}

/* A thread is preempted while it makes a cache. Neither another thread waits for it, nor the child of a fork, where it does not exist. */
static void held_up(void)
{
    struct still_pool *pool = made();
    pthread_barrier_init(&meeting, NULL, 2);
    refuse_by(is_held_up);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, makes, pool) == 0);
    pthread_barrier_wait(&meeting);
    alarm(60); /* if there is a wait, it is for ever */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(30);
        struct still_local *local = still_local_new(pool);
        CHECK(local != NULL);
        uses(local);
        CHECK(still_local_free(local) == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    struct still_local *local = still_local_new(pool);
    CHECK(local != NULL);
    pthread_barrier_wait(&meeting);
    CHECK(pthread_join(thread, NULL) == 0);
    alarm(0);
    uses(local);
    refuse_by(NULL);
    CHECK(still_local_free(local) == 0 && still_pool_free(pool) == 0);
}

int main(void)
{
    refused();
    held_up();
    return 0;
}
