/* Tests of defer queues. The program runs with DPDK's headers, and without. */
#define ALLOW_EXPERIMENTAL_API
#include <rte_rcu_qsbr.h>

#include "check.h"

struct element {
    uint32_t words[3];
};

static struct rte_rcu_qsbr *v;
static struct rte_rcu_qsbr_dq *queue;
static unsigned int freed;
static uint32_t last;
static int again;

static void free_it(void *p, void *e, unsigned int n)
{
    struct element *element = (struct element *)e;
    CHECK(n == 1 && p == (void *)&freed && element->words[1] == ~element->words[0] && element->words[2] == 7);
    last = element->words[0];
    freed++;
    if (again) {
        /* The library holds no lock here. */
        again = 0;
        CHECK(rte_rcu_qsbr_dq_enqueue(queue, element) == 0);
    }
}

static int enqueue(uint32_t number)
{
    struct element element = { { number, ~number, 7 } };
    int answer = rte_rcu_qsbr_dq_enqueue(queue, &element);
    memset(&element, 0xaa, sizeof element);
    return answer;
}

static void refused(struct rte_rcu_qsbr_dq_parameters parameters, const char *words)
{
    rte_errno = 0;
    CHECK(rte_rcu_qsbr_dq_create(&parameters) == NULL && rte_errno == EINVAL);
    SAYS(words);
}

static struct rte_rcu_qsbr_dq_parameters usual(uint32_t size)
{
    struct rte_rcu_qsbr_dq_parameters parameters;
    memset(&parameters, 0, sizeof parameters);
    parameters.name = "a queue";
    parameters.size = size;
    parameters.esize = sizeof(struct element);
    parameters.trigger_reclaim_limit = size + 1;
    parameters.free_fn = free_it;
    parameters.p = &freed;
    parameters.v = v;
    return parameters;
}

static void parameters(void)
{
    struct rte_rcu_qsbr_dq_parameters wrong = usual(5);
    CHECK(rte_rcu_qsbr_dq_create(NULL) == NULL && rte_errno == EINVAL);
    wrong.v = NULL, refused(wrong, "NULL was passed for a quiescent state variable"), wrong = usual(5);
    wrong.name = NULL, refused(wrong, "`name` is NULL"), wrong = usual(5);
    wrong.free_fn = NULL, refused(wrong, "`free_fn` is NULL"), wrong = usual(5);
    wrong.size = 0, refused(wrong, "`size` is 0"), wrong = usual(5);
    wrong.esize = 0, refused(wrong, "`esize` 0"), wrong = usual(5);
    wrong.esize = 6, refused(wrong, "`esize` 6"), wrong = usual(5);
    wrong.trigger_reclaim_limit = 5, refused(wrong, "set it to at least 1, or `trigger_reclaim_limit`, which is 5, to more than `size`");
}

static void room(uint32_t size, unsigned int places)
{
    struct rte_rcu_qsbr_dq_parameters parameters = usual(size);
    queue = rte_rcu_qsbr_dq_create(&parameters);
    CHECK(queue != NULL);
    freed = 0;
    uint64_t before = v->token;
    for (uint32_t number = 0; number < places; number++)
        CHECK(enqueue(number) == 0);
    rte_errno = 0;
    CHECK(enqueue(places) == 1 && rte_errno == ENOSPC && v->token == before + places + 1);
    SAYS("a queue is full: it has");
    unsigned int count = 5, pending = 0, available = 5;
    CHECK(rte_rcu_qsbr_dq_reclaim(queue, 100, &count, &pending, &available) == 0);
    CHECK(count == 0 && pending == places && available == 0);
    rte_errno = 0;
    CHECK(rte_rcu_qsbr_dq_delete(queue) == 1 && rte_errno == EAGAIN);
    rte_rcu_qsbr_quiescent(v, 0);
    CHECK(rte_rcu_qsbr_dq_reclaim(queue, 2, &count, &pending, &available) == 0);
    CHECK(count == 2 && freed == 2 && last == 1 && pending == places - 2 && available == 2);
    CHECK(rte_rcu_qsbr_dq_reclaim(queue, 1, NULL, NULL, NULL) == 0 && freed == 3);
    /* A reclaim stops at the first element whose grace period is not over. */
    CHECK(enqueue(places) == 0 && rte_rcu_qsbr_dq_reclaim(queue, 1000, NULL, &pending, NULL) == 0);
    CHECK(freed == places && pending == 1);
    rte_errno = 0;
    CHECK(rte_rcu_qsbr_dq_reclaim(queue, 0, NULL, NULL, NULL) == 1 && rte_errno == EINVAL);
    SAYS("n is 0: reclaim at least 1");
    CHECK(rte_rcu_qsbr_dq_delete(queue) == 1 && rte_errno == EAGAIN);
    rte_rcu_qsbr_quiescent(v, 0);
    CHECK(rte_rcu_qsbr_dq_delete(queue) == 0 && freed == places + 1 && last == places);
}

static void triggered(void)
{
    struct rte_rcu_qsbr_dq_parameters parameters = usual(100);
    parameters.trigger_reclaim_limit = 10;
    parameters.max_reclaim_size = 4;
    parameters.flags = RTE_RCU_QSBR_DQ_MT_UNSAFE;
    queue = rte_rcu_qsbr_dq_create(&parameters);
    freed = 0;
    for (uint32_t number = 0; number < 11; number++)
        CHECK(enqueue(number) == 0);
    rte_rcu_qsbr_quiescent(v, 0);
    CHECK(freed == 0 && enqueue(11) == 0 && freed == 4);
    CHECK(enqueue(12) == 0 && freed == 4 && enqueue(13) == 0 && freed == 4);
    CHECK(enqueue(14) == 0 && freed == 4);
    rte_rcu_qsbr_quiescent(v, 0);
    again = 1;
    unsigned int pending = 0;
    CHECK(rte_rcu_qsbr_dq_reclaim(queue, 100, NULL, &pending, NULL) == 0 && again == 0 && pending == 1);
    rte_rcu_qsbr_quiescent(v, 0);
    CHECK(rte_rcu_qsbr_dq_delete(queue) == 0 && freed == 16);
    CHECK(rte_rcu_qsbr_dq_delete(NULL) == 0);
    rte_errno = 0;
    CHECK(rte_rcu_qsbr_dq_enqueue(NULL, &parameters) == 1 && rte_errno == EINVAL);
}

/* Two queues whose functions enqueue in each other: each is reclaimed within the other's function at most once. */
static struct rte_rcu_qsbr_dq *pair[2];
static int depth, deepest, is_last;

static void pass_on(void *p, void *e, unsigned int n)
{
    CHECK(n == 1);
    if (is_last)
        return;
    depth++;
    deepest = depth > deepest ? depth : deepest;
    CHECK(rte_rcu_qsbr_dq_enqueue(*(struct rte_rcu_qsbr_dq **)p, e) == 0);
    depth--;
}

static void mutual(void)
{
    struct rte_rcu_qsbr_dq_parameters parameters = usual(1000);
    parameters.max_reclaim_size = 1;
    parameters.free_fn = pass_on;
    struct element element = { { 0, 0, 0 } };
    for (int at = 0; at < 2; at++) {
        parameters.trigger_reclaim_limit = 0;
        parameters.p = &pair[1 - at];
        pair[at] = rte_rcu_qsbr_dq_create(&parameters);
        CHECK(pair[at] != NULL);
    }
    for (int number = 0; number < 1001; number++)
        CHECK(rte_rcu_qsbr_dq_enqueue(pair[number % 2], &element) == 0);
    rte_rcu_qsbr_quiescent(v, 0);
    CHECK(rte_rcu_qsbr_dq_enqueue(pair[1], &element) == 0 && rte_rcu_qsbr_dq_enqueue(pair[0], &element) == 0);
    CHECK(deepest >= 1 && deepest <= 2);
    is_last = 1;
    rte_rcu_qsbr_quiescent(v, 0);
    CHECK(rte_rcu_qsbr_dq_delete(pair[0]) == 0 && rte_rcu_qsbr_dq_delete(pair[1]) == 0);
}

/* The copies of elements of every length are equal to the elements. */
static uint8_t expected;
static uint32_t length;

static void free_bytes(void *p, void *e, unsigned int n)
{
    CHECK(p == NULL && n == 1 && (uintptr_t)e % 8 == 0);
    for (uint32_t at = 0; at < length; at++)
        CHECK(((uint8_t *)e)[at] == (uint8_t)(expected + at));
    expected++;
}

static void lengths(void)
{
    uint8_t bytes[300];
    for (length = 4; length <= 292; length += 4) {
        struct rte_rcu_qsbr_dq_parameters parameters = usual(3);
        parameters.esize = length;
        parameters.free_fn = free_bytes;
        parameters.p = NULL;
        queue = rte_rcu_qsbr_dq_create(&parameters);
        for (uint8_t number = 0; number < 3; number++) {
            for (uint32_t at = 0; at < length; at++)
                bytes[at] = (uint8_t)(number + at);
            CHECK(rte_rcu_qsbr_dq_enqueue(queue, bytes) == 0);
        }
        expected = 0;
        rte_rcu_qsbr_quiescent(v, 0);
        CHECK(rte_rcu_qsbr_dq_delete(queue) == 0 && expected == 3);
    }
}

/* Several threads enqueue and reclaim; one reads. */
enum { WRITERS = 3, EACH = 5000 };

static uint64_t *objects[WRITERS];
static unsigned int destroyed;
static int ended;

static void destroy(void *p, void *e, unsigned int n)
{
    uint64_t *object;
    CHECK(p == NULL && n == 1);
    memcpy(&object, e, sizeof object);
    CHECK(*object == 1);
    *object = 0;
    free(object);
    COUNT(destroyed);
}

static uint64_t *new_object(void)
{
    uint64_t *made = (uint64_t *)malloc(sizeof *made);
    CHECK(made != NULL);
    *made = 1;
    return made;
}

static void *write_it(void *argument)
{
    uint64_t **place = (uint64_t **)argument;
    for (int round = 0; round < EACH; round++) {
        uint64_t *old = __atomic_exchange_n(place, new_object(), __ATOMIC_ACQ_REL);
        while (rte_rcu_qsbr_dq_enqueue(queue, &old) != 0) {
            CHECK(rte_errno == ENOSPC);
            sched_yield();
        }
    }
    return NULL;
}

static void *read_it(void *unused)
{
    (void)unused;
    rte_rcu_qsbr_thread_online(v, 1);
    while (!LOAD(ended)) {
        for (int writer = 0; writer < WRITERS; writer++)
            CHECK(*LOAD(objects[writer]) == 1);
        rte_rcu_qsbr_quiescent(v, 1);
    }
    rte_rcu_qsbr_thread_offline(v, 1);
    return NULL;
}

static void threads(void)
{
    struct rte_rcu_qsbr_dq_parameters parameters = usual(1000);
    pthread_t writers[WRITERS];
    parameters.esize = sizeof(uint64_t *);
    parameters.trigger_reclaim_limit = 20;
    parameters.max_reclaim_size = 50;
    parameters.free_fn = destroy;
    parameters.p = NULL;
    queue = rte_rcu_qsbr_dq_create(&parameters);
    rte_rcu_qsbr_thread_offline(v, 0);
    CHECK(rte_rcu_qsbr_thread_register(v, 1) == 0);
    for (int writer = 0; writer < WRITERS; writer++)
        objects[writer] = new_object();
    pthread_t reader = started(read_it, NULL);
    for (int writer = 0; writer < WRITERS; writer++)
        writers[writer] = started(write_it, &objects[writer]);
    for (int writer = 0; writer < WRITERS; writer++)
        joined(writers[writer]);
    STORE(ended, 1);
    joined(reader);
    CHECK(rte_rcu_qsbr_dq_delete(queue) == 0 && destroyed == WRITERS * EACH);
    for (int writer = 0; writer < WRITERS; writer++)
        free(objects[writer]);
}

int main(void)
{
    void *memory = NULL;
    CHECK(posix_memalign(&memory, 64, rte_rcu_qsbr_get_memsize(4)) == 0);
    v = (struct rte_rcu_qsbr *)memory;
    CHECK(rte_rcu_qsbr_init(v, 4) == 0 && rte_rcu_qsbr_thread_register(v, 0) == 0);
    rte_rcu_qsbr_thread_online(v, 0);
    parameters();
    room(3, 3);
    room(4, 7);
    room(7, 7);
    room(8, 15);
    triggered();
    mutual();
    lengths();
    threads();
    free(memory);
    return 0;
}
