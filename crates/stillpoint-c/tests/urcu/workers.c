/* Tests of workers: they are made, found, set for threads and CPUs, and freed. Threads that cannot be started. */
#include "flavour.h"

#include <dlfcn.h>
#include <time.h>

static int is_refused, refused;
/* Threads that were started and have not been joined. The system shows a thread for some time after its join. */
static int threads;

/* Refuses to start threads while is_refused is set, like a system that has reached its limit. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)
#ifdef __cplusplus
    noexcept
#endif
{
    typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    static create_fn *real;
    if (real == NULL) {
        void *found = dlsym(RTLD_NEXT, "pthread_create");
        memcpy(&real, &found, sizeof found);
    }
    if (LOAD(is_refused)) {
        ADD(refused, 1);
        return EAGAIN;
    }
    int answer = real(thread, attributes, function, argument);
    if (answer == 0)
        ADD(threads, 1);
    return answer;
}

int pthread_join(pthread_t thread, void **result)
{
    typedef int join_fn(pthread_t, void **);
    static join_fn *real;
    if (real == NULL) {
        void *found = dlsym(RTLD_NEXT, "pthread_join");
        memcpy(&real, &found, sizeof found);
    }
    int answer = real(thread, result);
    if (answer == 0)
        ADD(threads, -1);
    return answer;
}

struct node {
    struct rcu_head head;
    pthread_t caller;
    cpu_set_t cpus;
};

static int called;
static struct node last;

static void remember(struct rcu_head *head)
{
    struct node *node = (struct node *)(void *)head;
    last.caller = pthread_self();
    CHECK(sched_getaffinity(0, sizeof last.cpus, &last.cpus) == 0);
    free(node);
    ADD(called, 1);
}

static void push(void)
{
    struct node *node = (struct node *)malloc(sizeof *node);
    CHECK(node != NULL);
    call_rcu(&node->head, remember);
}

/* Pushes a callback, and returns the thread that called it. */
static pthread_t caller(void)
{
    push();
    rcu_barrier();
    return last.caller;
}

static int reports;

static void reported(const char *report, void *context) STILL_NOEXCEPT
{
    CHECK(context == &reports && strstr(report, "could not be started") != NULL);
    ADD(reports, 1);
}

static void refusals(void)
{
    STORE(is_refused, 1);
    still_on_report(reported, &reports);
    errno = 0;
    CHECK(create_call_rcu_data(0, -1) == NULL && errno == EAGAIN && LOAD(refused) > 0);
    CHECK(create_all_cpu_call_rcu_data(0) == -EAGAIN && errno == EAGAIN);
    CHECK(get_cpu_call_rcu_data(0) == NULL);
    /* The barrier runs the callbacks of a worker without a thread. */
    CHECK(pthread_equal(caller(), pthread_self()));
    CHECK(LOAD(called) == 1);
    CHECK(LOAD(reports) > 0 && LOAD(reports) <= LOAD(refused));
    still_on_report(NULL, NULL);
    int before = LOAD(refused);
    STORE(is_refused, 0);
    AWAIT((push(), rcu_barrier(), !pthread_equal(last.caller, pthread_self())));
    CHECK(pthread_equal(last.caller, get_call_rcu_thread(get_default_call_rcu_data())));
    CHECK(LOAD(refused) == before);
}

static void choices(void)
{
    struct call_rcu_data *standard = get_default_call_rcu_data();
    CHECK(standard != NULL && get_default_call_rcu_data() == standard && get_call_rcu_data() == standard);
    CHECK(get_thread_call_rcu_data() == NULL && get_cpu_call_rcu_data(0) == NULL);
    /* The default worker stays. */
    call_rcu_data_free(standard);
    CHECK(pthread_equal(caller(), get_call_rcu_thread(standard)));
    call_rcu_data_free(NULL);

    cpu_set_t allowed;
    CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    int cpu = 0;
    while (!CPU_ISSET((size_t)cpu, &allowed))
        cpu++;
    struct call_rcu_data *own = create_call_rcu_data(URCU_CALL_RCU_RT, cpu);
    CHECK(own != NULL && own != standard);
    set_thread_call_rcu_data(own);
    CHECK(get_thread_call_rcu_data() == own && get_call_rcu_data() == own);
    CHECK(pthread_equal(caller(), get_call_rcu_thread(own)));
    CHECK(CPU_COUNT(&last.cpus) == 1 && CPU_ISSET((size_t)cpu, &last.cpus));
    set_thread_call_rcu_data(NULL);
    CHECK(get_call_rcu_data() == standard);

    CHECK(set_cpu_call_rcu_data(-1, own) == -EINVAL && errno == EINVAL);
    CHECK(set_cpu_call_rcu_data(1 << 20, own) == -EINVAL);
    for (int each = 0; each < sysconf(_SC_NPROCESSORS_CONF); each++)
        CHECK(set_cpu_call_rcu_data(each, own) == 0 && get_cpu_call_rcu_data(each) == own);
    CHECK(set_cpu_call_rcu_data(0, own) == -EEXIST && errno == EEXIST);
    CHECK(get_call_rcu_data() == own && pthread_equal(caller(), get_call_rcu_thread(own)));
    for (int each = 0; each < sysconf(_SC_NPROCESSORS_CONF); each++)
        CHECK(set_cpu_call_rcu_data(each, NULL) == 0);

    /* Freeing a worker joins its thread. */
    int before = LOAD(threads);
    call_rcu_data_free(own);
    CHECK(LOAD(threads) == before - 1);
    /* A second free is reported and refused. */
    call_rcu_data_free(own);
    CHECK(pthread_equal(caller(), get_call_rcu_thread(standard)));

    before = LOAD(threads);
    /* One for each CPU that may ever be there: at least one for each that is. */
    CHECK(create_all_cpu_call_rcu_data(0) == 0 && create_all_cpu_call_rcu_data(0) == 0);
    int cpus = 0;
    while (get_cpu_call_rcu_data(cpus) != NULL)
        cpus++;
    CHECK(cpus >= sysconf(_SC_NPROCESSORS_CONF) && LOAD(threads) == before + cpus);
    CHECK(set_cpu_call_rcu_data(cpus, NULL) == -EINVAL);
    CHECK(get_cpu_call_rcu_data(0) != NULL && get_call_rcu_data() != standard);
    CHECK(!pthread_equal(caller(), get_call_rcu_thread(standard)));
    free_all_cpu_call_rcu_data();
    CHECK(LOAD(threads) == before && get_call_rcu_data() == standard);
}

/* The callbacks of a freed worker go to the default worker. */
static void leftovers(void)
{
    struct holder holder;
    struct call_rcu_data *own = create_call_rcu_data(0, -1);
    CHECK(own != NULL);
    rcu_thread_offline();
    hold(&holder);
    rcu_thread_online();
    set_thread_call_rcu_data(own);
    int before = LOAD(called);
    for (int round = 0; round < 1000; round++)
        push();
    set_thread_call_rcu_data(NULL);
    call_rcu_data_free(own);
    CHECK(LOAD(called) == before);
    /* Pushes to the freed worker, as a thread does that has read its address before. */
    set_thread_call_rcu_data(own);
    push();
    set_thread_call_rcu_data(NULL);
    rcu_thread_offline();
    let_go(&holder);
    rcu_thread_online();
    rcu_barrier();
    CHECK(LOAD(called) == before + 1001);
    CHECK(pthread_equal(last.caller, get_call_rcu_thread(get_default_call_rcu_data())));
}

static void frees_itself(struct rcu_head *head)
{
    struct call_rcu_data *own = get_thread_call_rcu_data();
    CHECK(own == get_default_call_rcu_data());
    call_rcu_data_free(get_default_call_rcu_data());
    free(head);
    ADD(called, 1);
}

static size_t stack;

static void measures_its_stack(struct rcu_head *head)
{
    pthread_attr_t attributes;
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_getstacksize(&attributes, &stack) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
    free(head);
}

/* Workers have the stack that threads of the program have. */
static void stacks(void)
{
    pthread_attr_t attributes;
    size_t size = 24 << 20;
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, size) == 0);
    CHECK(pthread_setattr_default_np(&attributes) == 0 && pthread_attr_destroy(&attributes) == 0);
    struct call_rcu_data *own = create_call_rcu_data(0, -1);
    CHECK(own != NULL);
    set_thread_call_rcu_data(own);
    struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
    CHECK(head != NULL);
    call_rcu(head, measures_its_stack);
    rcu_barrier();
    CHECK(stack >= size && stack < 2 * size);
    set_thread_call_rcu_data(NULL);
    call_rcu_data_free(own);
}

enum { WORKERS = 64 };
static int stop, pushed;

static void count(struct rcu_head *head)
{
    free(head);
    ADD(called, 1);
}

/* Pushes to a worker that is freed meanwhile. */
static void *pushes(void *argument)
{
    (void)argument;
    rcu_register_thread();
    rcu_thread_offline();
    while (!LOAD(stop)) {
        struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
        CHECK(head != NULL);
        call_rcu(head, count);
        ADD(pushed, 1);
    }
    rcu_unregister_thread();
    return NULL;
}

static void idle(void)
{
    struct call_rcu_data *workers[WORKERS];
    for (int each = 0; each < WORKERS; each++)
        CHECK((workers[each] = create_call_rcu_data(0, -1)) != NULL);
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int each = 0; each < WORKERS; each++)
        call_rcu_data_free(workers[each]);
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("freeing %d idle workers: %.3f ms\n", WORKERS,
           (double)(end.tv_sec - begin.tv_sec) * 1e3 + (double)(end.tv_nsec - begin.tv_nsec) / 1e6);
}

static void freed_under_pushes(void)
{
    rcu_barrier();
    int before = LOAD(called);
    pthread_t pushers[2] = {started(pushes, NULL), started(pushes, NULL)};
    for (int round = 0; round < 50; round++) {
        CHECK(create_all_cpu_call_rcu_data(0) == 0);
        int now = LOAD(pushed);
        AWAIT(LOAD(pushed) > now + 10);
        free_all_cpu_call_rcu_data();
        rcu_quiescent_state();
    }
    STORE(stop, 1);
    for (int each = 0; each < 2; each++)
        CHECK(pthread_join(pushers[each], NULL) == 0);
    rcu_barrier();
    CHECK(LOAD(called) == before + LOAD(pushed));
}

int main(void)
{
    rcu_register_thread();
    refusals();
    choices();
    leftovers();
    struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
    CHECK(head != NULL);
    call_rcu(head, frees_itself);
    rcu_barrier();
    idle();
    stacks();
    freed_under_pushes();
    rcu_unregister_thread();
    return 0;
}
