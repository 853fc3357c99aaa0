/* Tests of every sentence in rte_rcu_qsbr.h except those about defer queues. The program runs with DPDK's headers, and without. */
#ifdef RTE_LIBRTE_RCU_DEBUG
#include <stdio.h>
static char reported[200];
static int reports_so_far;
#define STILL_RTE_REPORT(...) (reports_so_far++, (void)snprintf(reported, sizeof reported, __VA_ARGS__))
#endif
#include <rte_rcu_qsbr.h>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static struct rte_rcu_qsbr *made(uint32_t ids)
{
    size_t size = rte_rcu_qsbr_get_memsize(ids);
    void *memory = NULL;
    CHECK(posix_memalign(&memory, 64, size) == 0);
    memset(memory, 0xaa, size);
    struct rte_rcu_qsbr *v = (struct rte_rcu_qsbr *)memory;
    CHECK(rte_rcu_qsbr_init(v, ids) == 0);
    return v;
}

static struct rte_rcu_qsbr *with_reader(uint32_t ids)
{
    struct rte_rcu_qsbr *v = made(ids);
    for (unsigned int id = 0; id < ids; id++)
        CHECK(rte_rcu_qsbr_thread_register(v, id) == 0);
    rte_rcu_qsbr_thread_online(v, 0);
    return v;
}

#define FAILS(call, number)                                                                                \
    do {                                                                                                   \
        rte_errno = 0;                                                                                     \
        errno = 0;                                                                                         \
        CHECK((call) == 1 && rte_errno == (number) && errno == (number));                                  \
    } while (0)

static void memory(void)
{
    FAILS(rte_rcu_qsbr_get_memsize(0), EINVAL);
    SAYS("max_threads is 0: a quiescent state variable has at least 1 thread id");
    CHECK(rte_rcu_qsbr_get_memsize(1) == 128 + 64 + 64);
    CHECK(rte_rcu_qsbr_get_memsize(128) == 8384);
    CHECK(rte_rcu_qsbr_get_memsize(513) == 128 + 513 * 64 + 128);
    FAILS(rte_rcu_qsbr_init(NULL, 5), EINVAL);
    static char anywhere[4096] __attribute__((aligned(64)));
    FAILS(rte_rcu_qsbr_init((struct rte_rcu_qsbr *)(anywhere + 8), 5), EINVAL);
    SAYS("must be aligned to 64 bytes");
    struct rte_rcu_qsbr *v = made(130);
    FAILS(rte_rcu_qsbr_init(v, 0), EINVAL);
    SAYS("max_threads is 0");
    CHECK(v->token == __RTE_QSBR_CNT_INIT && v->acked_token == 0 && v->max_threads == 130);
    CHECK(v->num_threads == 0 && v->num_elems == 3 && v->qsbr_cnt[129].cnt == 0);
    CHECK(*__RTE_QSBR_THRID_ARRAY_ELM(v, 2) == 0 && rte_rcu_qsbr_start(v) == 2);
    free(v);
}

static void ids(void)
{
    struct rte_rcu_qsbr *v = made(130);
    FAILS(rte_rcu_qsbr_thread_register(NULL, 0), EINVAL);
    FAILS(rte_rcu_qsbr_thread_register(v, 130), EINVAL);
    SAYS("no thread id 130: the variable was initialised for 0 to 129");
    FAILS(rte_rcu_qsbr_thread_unregister(NULL, 0), EINVAL);
    FAILS(rte_rcu_qsbr_thread_unregister(v, 130), EINVAL);
    FAILS(rte_rcu_qsbr_thread_register(v, RTE_QSBR_THRID_INVALID), EINVAL);
    struct rte_rcu_qsbr *never = (struct rte_rcu_qsbr *)calloc(1, sizeof *never);
    FAILS(rte_rcu_qsbr_thread_register(never, 0), EINVAL);
    SAYS("call rte_rcu_qsbr_init first");
    free(never);
    for (int twice = 0; twice < 2; twice++)
        CHECK(rte_rcu_qsbr_thread_register(v, 129) == 0 && v->num_threads == 1);
    CHECK(*__RTE_QSBR_THRID_ARRAY_ELM(v, 2) == 2);
    rte_rcu_qsbr_thread_online(v, 129);
    uint64_t token = rte_rcu_qsbr_start(v);
    CHECK(rte_rcu_qsbr_check(v, token, false) == 0);
    for (int twice = 0; twice < 2; twice++)
        CHECK(rte_rcu_qsbr_thread_unregister(v, 129) == 0 && v->num_threads == 0);
    CHECK(v->qsbr_cnt[129].cnt == 0 && *__RTE_QSBR_THRID_ARRAY_ELM(v, 2) == 0);
    CHECK(rte_rcu_qsbr_check(v, token, true) == 1);
    free(v);
}

static void grace_periods(void)
{
    struct rte_rcu_qsbr *v = with_reader(70);
    /* Only id 0 is online. */
    uint64_t first = rte_rcu_qsbr_start(v), second = rte_rcu_qsbr_start(v);
    CHECK(second == first + 1);
    CHECK(rte_rcu_qsbr_check(v, first, false) == 0 && rte_rcu_qsbr_check(v, second, false) == 0);
    rte_rcu_qsbr_quiescent(v, 0);
    CHECK(v->qsbr_cnt[0].cnt == second);
    CHECK(rte_rcu_qsbr_check(v, first, false) == 1 && v->acked_token == second && v->still_acked_ == second);
    CHECK(rte_rcu_qsbr_check(v, second, true) == 1);

    /* The id goes offline, and another id is in the last word of the bitmap. */
    uint64_t third = rte_rcu_qsbr_start(v);
    rte_rcu_qsbr_thread_online(v, 69);
    uint64_t fourth = rte_rcu_qsbr_start(v);
    CHECK(rte_rcu_qsbr_check(v, third, false) == 0);
    rte_rcu_qsbr_thread_offline(v, 0);
    CHECK(v->qsbr_cnt[0].cnt == 0 && rte_rcu_qsbr_check(v, third, false) == 1);
    CHECK(rte_rcu_qsbr_check(v, fourth, false) == 0);
    rte_rcu_qsbr_lock(v, 69);
    rte_rcu_qsbr_unlock(v, 69);
    rte_rcu_qsbr_thread_offline(v, 69);
    /* No id is online, so all grace periods are over, and recorded as such. */
    CHECK(rte_rcu_qsbr_check(v, fourth, false) == 1 && v->still_acked_ == fourth);

    /* A quiescent state of an id that is offline puts it online. */
    rte_rcu_qsbr_quiescent(v, 3);
    CHECK(v->qsbr_cnt[3].cnt == fourth && v->qsbr_cnt[3].still_tid_ == (uint32_t)syscall(SYS_gettid));
    uint64_t fifth = rte_rcu_qsbr_start(v);
    CHECK(__rte_rcu_qsbr_check_all(v, fifth, false) == 0 && __rte_rcu_qsbr_check_selective(v, fifth, false) == 0);

    /* synchronize reports a quiescent state for its caller. */
    rte_rcu_qsbr_synchronize(v, 3);
    CHECK(v->qsbr_cnt[3].cnt == fifth + 1);
    rte_rcu_qsbr_thread_offline(v, 3);
    rte_rcu_qsbr_synchronize(v, RTE_QSBR_THRID_INVALID);
    CHECK(v->token == fifth + 2 && v->still_acked_ == fifth + 2);
    /* After an error, the grace period counts as unfinished. */
    CHECK(still_rte_rcu_check_(NULL, 1, 0) == 0 && still_rte_rcu_check_(NULL, 1, 1) == 0);
    rte_rcu_qsbr_synchronize(v, 70);
    CHECK(v->still_acked_ == fifth + 3);
    free(v);
}

/* A check records no token that began after its scan, and does not use what code compiled against DPDK's header has recorded. */
static void remembers(void)
{
    struct rte_rcu_qsbr *v = with_reader(2);
    uint64_t token = rte_rcu_qsbr_start(v);
    /* As if the reader had reported a token that was started during the scan. */
    v->qsbr_cnt[0].cnt = token + 5;
    CHECK(rte_rcu_qsbr_check(v, token, false) == 1);
    CHECK(v->still_acked_ == token && v->acked_token == token);
    v->qsbr_cnt[0].cnt = token;
    token = rte_rcu_qsbr_start(v);
    v->acked_token = token + 5;
    CHECK(rte_rcu_qsbr_check(v, token, false) == 0);
    free(v);
}

static void reports(void)
{
    struct rte_rcu_qsbr *v = with_reader(3);
    struct still_rte_rcu_report stall;
    memset(&stall, 0, sizeof stall);
    CHECK(still_rte_rcu_stall(v, 1, &stall) == -EINVAL);
    SAYS("size 0: set it to sizeof(struct still_rte_rcu_report)");
    stall.size = sizeof stall;
    CHECK(still_rte_rcu_stall(NULL, 1, &stall) == -EINVAL && still_rte_rcu_stall(v, 1, NULL) == -EINVAL);
    uint64_t token = rte_rcu_qsbr_start(v);
    CHECK(pthread_setname_np(pthread_self(), "the reader") == 0);
    CHECK(still_rte_rcu_stall(v, token, &stall) == 1 && stall.thread_id == 0 && stall.others == 0);
    CHECK(stall.tid == (uint32_t)syscall(SYS_gettid) && strcmp(stall.name, "the reader") == 0);
    CHECK(stall.reported == token - 1 && stall.locks == 0);
    v->qsbr_cnt[2].cnt = 1; /* as code compiled against DPDK's header does */
    CHECK(still_rte_rcu_stall(v, token, &stall) == 1 && stall.thread_id == 0 && stall.others == 1);
    rte_rcu_qsbr_quiescent(v, 0);
    CHECK(still_rte_rcu_stall(v, token, &stall) == 1 && stall.thread_id == 2 && stall.tid == 0 && stall.name[0] == '\0');
    rte_rcu_qsbr_thread_offline(v, 2);
    CHECK(still_rte_rcu_stall(v, token, &stall) == 0);
    rte_rcu_qsbr_thread_offline(v, 0);
    CHECK(v->qsbr_cnt[0].still_tid_ == 0);

    rte_rcu_qsbr_thread_online(v, 1);
    token = rte_rcu_qsbr_start(v);
    CHECK(still_rte_rcu_check_timeout(v, token, 0) == 0 && still_rte_rcu_check_timeout(v, token, 300000) == 0);
    CHECK(still_rte_rcu_check_timeout(v, token, -2) == -EINVAL && still_rte_rcu_check_timeout(NULL, token, 5) == -EINVAL);
    rte_rcu_qsbr_quiescent(v, 1);
    CHECK(still_rte_rcu_check_timeout(v, token, 0) == 1 && still_rte_rcu_check_timeout(v, token, -1) == 1);

    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    FAILS(rte_rcu_qsbr_dump(NULL, v), EINVAL);
    FAILS(rte_rcu_qsbr_dump(file, NULL), EINVAL);
    CHECK(rte_rcu_qsbr_dump(file, v) == 0 && fclose(file) == 0);
    static const char *const words[] = { "memory size = 384", "max threads = 3", "current threads = 3", "registered thread ids = 0 1 2",
                                         "token = 3", "least acknowledged token = 3", "thread id = 1, count = 3, lock count = 0" };
    for (size_t at = 0; at < sizeof words / sizeof words[0]; at++)
        CHECK(strstr(text, words[at]) != NULL);
    free(text);
    free(v);
}

static void *goes_online(void *argument)
{
    struct rte_rcu_qsbr *v = (struct rte_rcu_qsbr *)argument;
    rte_rcu_qsbr_quiescent(v, 1);
    return NULL;
}

/* A report does not name the thread that had the id before. */
static void changing_hands(void)
{
    struct rte_rcu_qsbr *v = made(2);
    struct still_rte_rcu_report stall;
    stall.size = sizeof stall;
    CHECK(rte_rcu_qsbr_thread_register(v, 1) == 0);
    /* The thread ends while its id is online. */
    joined(started(goes_online, v));
    CHECK(v->qsbr_cnt[1].still_tid_ != 0);
    /* The thread may still exist for a moment after it was joined. */
    UNTIL(syscall(SYS_tkill, v->qsbr_cnt[1].still_tid_, 0) == -1);
    CHECK(still_rte_rcu_stall(v, rte_rcu_qsbr_start(v), &stall) == 1 && stall.thread_id == 1);
    CHECK(stall.tid == 0 && stall.name[0] == '\0');
    /* The id goes offline, and does not store its thread, as with code compiled against DPDK's header. */
    for (int how = 0; how < 2; how++) {
        v->qsbr_cnt[1].cnt = 0;
        v->qsbr_cnt[1].still_tid_ = 1;
        if (how == 0)
            rte_rcu_qsbr_thread_online(v, 1);
        else
            rte_rcu_qsbr_synchronize(v, 1);
        CHECK(still_rte_rcu_stall(v, rte_rcu_qsbr_start(v), &stall) == 1 && stall.tid == (uint32_t)syscall(SYS_gettid));
    }
    free(v);
}

static int64_t nanoseconds(clockid_t clock)
{
    struct timespec now;
    CHECK(clock_gettime(clock, &now) == 0);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A check ends at its limit. The fastest of many checks shows that, because it was disturbed least. */
static void limits(void)
{
    struct rte_rcu_qsbr *v = with_reader(10000);
    rte_rcu_qsbr_thread_offline(v, 0);
    rte_rcu_qsbr_thread_online(v, 9999);
    uint64_t token = rte_rcu_qsbr_start(v);
    /* A scan of all ids takes some time. A check must not scan many times after its limit. */
    int64_t look = INT64_MAX, check = INT64_MAX;
    for (int times = 0; times < 20; times++) {
        int64_t begin = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
        CHECK(rte_rcu_qsbr_check(v, token, false) == 0);
        int64_t middle = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
        CHECK(still_rte_rcu_check_timeout(v, token, 1) == 0);
        int64_t end = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
        look = middle - begin < look ? middle - begin : look;
        check = end - middle < check ? end - middle : check;
    }
    CHECK(check < 20 * look);
    /* A check must not sleep past its limit. Its sleeps become longer and longer; the last sleep before this limit would end 7 ms after it. */
    free(v);
    v = with_reader(1);
    token = rte_rcu_qsbr_start(v);
    int64_t limit = 15000000, least = INT64_MAX;
    for (int times = 0; times < 60 && least > 4000000; times++) {
        int64_t begin = nanoseconds(CLOCK_MONOTONIC);
        CHECK(still_rte_rcu_check_timeout(v, token, limit) == 0);
        int64_t over = nanoseconds(CLOCK_MONOTONIC) - begin - limit;
        CHECK(over >= 0);
        least = over < least ? over : least;
    }
    CHECK(least <= 4000000);
    free(v);
}

/* With RTE_LIBRTE_RCU_DEBUG, a quiescent state of a reader that holds a lock is reported, and nothing else. */
static void locks(void)
{
    struct rte_rcu_qsbr *v = with_reader(2);
#ifdef RTE_LIBRTE_RCU_DEBUG
    rte_rcu_qsbr_lock(v, 0);
    CHECK(reports_so_far == 0 && v->qsbr_cnt[0].lock_cnt == 1);
    rte_rcu_qsbr_quiescent(v, 0);
    CHECK(reports_so_far == 1 && strcmp(reported, "rte_rcu_qsbr_quiescent(): id 0 holds 1 locks\n") == 0);
    rte_rcu_qsbr_thread_offline(v, 0);
    CHECK(reports_so_far == 2 && strstr(reported, "offline") != NULL);
    rte_rcu_qsbr_thread_online(v, 0);
    CHECK(reports_so_far == 3 && strstr(reported, "online") != NULL);
    rte_rcu_qsbr_lock(v, 0);
    rte_rcu_qsbr_unlock(v, 0);
    CHECK(reports_so_far == 4 && strstr(reported, "unlock") != NULL);
    rte_rcu_qsbr_unlock(v, 0);
    rte_rcu_qsbr_quiescent(v, 0);
    CHECK(reports_so_far == 4 && v->qsbr_cnt[0].lock_cnt == 0);
#else
    rte_rcu_qsbr_lock(v, 0);
    CHECK(v->qsbr_cnt[0].lock_cnt == 0);
    rte_rcu_qsbr_unlock(v, 0);
#endif
    free(v);
}

struct waiting {
    struct rte_rcu_qsbr *v;
    uint64_t token;
};

static void *wait_for_it(void *argument)
{
    struct waiting *waiting = (struct waiting *)argument;
    CHECK(rte_rcu_qsbr_check(waiting->v, waiting->token, true) == 1);
    return NULL;
}

/* A check sleeps until `by` ends its wait. */
static void lets_go(uint32_t ids, void (*by)(struct rte_rcu_qsbr *v, unsigned int id))
{
    struct waiting waiting = { with_reader(ids), 0 };
    struct rte_rcu_qsbr *v = waiting.v;
    waiting.token = rte_rcu_qsbr_start(v);
    pthread_t thread = started(wait_for_it, &waiting);
    UNTIL(LOAD(v->still_attention_) == 1);
    by(v, 0);
    joined(thread);
    /* The call that ends the wait reads the futex word, and clears it. */
    rte_rcu_qsbr_thread_register(v, 0);
    rte_rcu_qsbr_thread_online(v, 0);
    (void)rte_rcu_qsbr_start(v);
    STORE(v->still_attention_, 1);
    by(v, 0);
    CHECK(v->still_attention_ == 0);
    free(v);
}

static void quiescent(struct rte_rcu_qsbr *v, unsigned int id)
{
    rte_rcu_qsbr_quiescent(v, id);
}

static void offline(struct rte_rcu_qsbr *v, unsigned int id)
{
    rte_rcu_qsbr_thread_offline(v, id);
}

static void unregister(struct rte_rcu_qsbr *v, unsigned int id)
{
    CHECK(rte_rcu_qsbr_thread_unregister(v, id) == 0);
}

/* The reader and the writer are different processes. */
static void processes(void)
{
    void *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    struct rte_rcu_qsbr *v = (struct rte_rcu_qsbr *)memory;
    CHECK(rte_rcu_qsbr_init(v, 4) == 0 && rte_rcu_qsbr_thread_register(v, 1) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        rte_rcu_qsbr_thread_online(v, 1);
        while (LOAD(v->qsbr_cnt[1].cnt) != 3) {
            UNTIL(LOAD(v->still_attention_) == 1);
            rte_rcu_qsbr_quiescent(v, 1);
        }
        rte_rcu_qsbr_thread_offline(v, 1);
        _exit(0);
    }
    UNTIL(LOAD(v->qsbr_cnt[1].still_tid_) != 0);
    CHECK(LOAD(v->qsbr_cnt[1].still_tid_) == (uint32_t)child);
    UNTIL(LOAD(v->qsbr_cnt[1].cnt) != 0); /* the thread id is stored first */
    rte_rcu_qsbr_synchronize(v, RTE_QSBR_THRID_INVALID);
    rte_rcu_qsbr_synchronize(v, RTE_QSBR_THRID_INVALID);
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(munmap(memory, 8192) == 0);
}

#ifdef WITHOUT_GRACE_PERIOD
/* The sanitizer is to say it, and would come too late. */
static int torn;
#define FOUND(condition)                                                                                                                     \
    do {                                                                                                                                     \
        if (!(condition))                                                                                                                    \
            COUNT(torn);                                                                                                                     \
    } while (0)
#else
#define FOUND(condition) CHECK(condition)
#endif

/* Readers, which register and unregister, never find a freed object. */
enum { READERS = 3, ROUNDS = 2000 };

static struct rte_rcu_qsbr *shared;
static uint64_t *object;
static int ended, reads;

static void *read_it(void *argument)
{
    unsigned int id = *(unsigned int *)argument;
    for (unsigned int round = 0; !LOAD(ended); round++) {
        CHECK(rte_rcu_qsbr_thread_register(shared, id) == 0);
        rte_rcu_qsbr_thread_online(shared, id);
        for (int times = 0; times < 50; times++) {
            rte_rcu_qsbr_lock(shared, id);
            uint64_t *found = LOAD(object);
            FOUND(found[0] == found[1]);
            if (times % 16 == 15)
                sched_yield();
            FOUND(found[0] == found[1] && found[0] != 0);
            COUNT(reads);
            rte_rcu_qsbr_unlock(shared, id);
            rte_rcu_qsbr_quiescent(shared, id);
        }
        if (round % 3 == 0)
            CHECK(rte_rcu_qsbr_thread_unregister(shared, id) == 0);
        else
            rte_rcu_qsbr_thread_offline(shared, id);
    }
    (void)rte_rcu_qsbr_thread_unregister(shared, id);
    return NULL;
}

static uint64_t *new_object(uint64_t number)
{
    uint64_t *made = (uint64_t *)malloc(2 * sizeof *made);
    CHECK(made != NULL);
    made[0] = made[1] = number;
    return made;
}

static void stress(void)
{
    unsigned int numbers[READERS];
    pthread_t threads[READERS];
    shared = made(READERS);
    object = new_object(1);
    for (unsigned int id = 0; id < READERS; id++) {
        numbers[id] = id;
        threads[id] = started(read_it, &numbers[id]);
    }
    for (uint64_t round = 2; round < ROUNDS; round++) {
        /* Readers read meanwhile. */
        int so_far = LOAD(reads);
        if (round % 16 == 0)
            UNTIL(LOAD(reads) != so_far);
        uint64_t *old = __atomic_exchange_n(&object, new_object(round), __ATOMIC_ACQ_REL);
        uint64_t token = rte_rcu_qsbr_start(shared);
#ifndef WITHOUT_GRACE_PERIOD
        if (round % 2 == 0)
            CHECK(rte_rcu_qsbr_check(shared, token, true) == 1);
        else
            UNTIL(rte_rcu_qsbr_check(shared, token, false));
#else
        (void)token;
#endif
        old[0] = 0;
        old[1] = round;
        free(old);
    }
    STORE(ended, 1);
    for (int id = 0; id < READERS; id++)
        joined(threads[id]);
    CHECK(shared->num_threads == 0);
    free(object);
    free(shared);
}

/* A reader goes online and follows a link, while a writer clears the link and looks for readers. At least one of them sees the other. */
enum { MEETINGS = 20000 };

/* The threads' variables, in separate cache lines. */
static struct {
    int value;
} __attribute__((__aligned__(256))) linked, round_of_reader, round_of_writer;

static void meet(int *mine, int *theirs, int round)
{
    STORE(*mine, round);
    for (int turns = 0; LOAD(*theirs) < round; turns++)
        if (turns > 1000)
            sched_yield();
}

/* Waits for a varying time, so that either thread may be first. */
static void tarry(int turns)
{
    for (int turn = 0; turn < turns; turn++)
        __asm__ volatile("" ::: "memory");
}

static int found[MEETINGS];
/* How the reader goes online: by going online, or by a quiescent state of an offline id. */
static int by_quiescent;

static void *come(void *unused)
{
    (void)unused;
    for (int round = 0; round < MEETINGS; round++) {
        meet(&round_of_reader.value, &round_of_writer.value, 3 * round + 1);
        tarry(round % 31 * 10);
        if (by_quiescent)
            rte_rcu_qsbr_quiescent(shared, 0);
        else
            rte_rcu_qsbr_thread_online(shared, 0);
        found[round] = __atomic_load_n(&linked.value, __ATOMIC_RELAXED);
        meet(&round_of_reader.value, &round_of_writer.value, 3 * round + 2);
        rte_rcu_qsbr_thread_offline(shared, 0);
        meet(&round_of_reader.value, &round_of_writer.value, 3 * round + 3);
    }
    return NULL;
}

static void meetings(void)
{
    int found_it = 0, found_nobody = 0;
    shared = made(1);
    CHECK(rte_rcu_qsbr_thread_register(shared, 0) == 0);
    round_of_reader.value = round_of_writer.value = 0;
    pthread_t reader = started(come, NULL);
    for (int round = 0; round < MEETINGS; round++) {
        __atomic_store_n(&linked.value, 1, __ATOMIC_RELAXED);
        meet(&round_of_writer.value, &round_of_reader.value, 3 * round + 1);
        tarry(round % 37 * 10);
        __atomic_store_n(&linked.value, 0, __ATOMIC_RELAXED);
        int is_over = rte_rcu_qsbr_check(shared, rte_rcu_qsbr_start(shared), false);
        meet(&round_of_writer.value, &round_of_reader.value, 3 * round + 2);
        CHECK(!(is_over && found[round]));
        found_it += found[round];
        found_nobody += is_over;
        meet(&round_of_writer.value, &round_of_reader.value, 3 * round + 3);
    }
    joined(reader);
    printf("of %d meetings: %d found the object, %d found no reader\n", MEETINGS, found_it, found_nobody);
    free(shared);
}

int main(void)
{
    memory();
    ids();
    grace_periods();
    remembers();
    reports();
    changing_hands();
    limits();
    locks();
    for (uint32_t registered = 1; registered < 3; registered++) {
        lets_go(registered, quiescent);
        lets_go(registered, offline);
        lets_go(registered, unregister);
    }
    processes();
    stress();
    meetings();
    by_quiescent = 1;
    meetings();
    return 0;
}
