/* Tests of forks while other threads push, wait, and make and free workers. */
#include "flavour.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int stop, called, pushed;

static void count(struct rcu_head *head)
{
    free(head);
    ADD(called, 1);
}

static void push(void)
{
    struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
    CHECK(head != NULL);
    ADD(pushed, 1);
    call_rcu(head, count);
}

/* Whether a thread of this process sleeps in the kernel. */
static int sleeps(pid_t thread)
{
    char name[64], text[256];
    CHECK(snprintf(name, sizeof name, "/proc/self/task/%d/stat", (int)thread) > 0);
    FILE *file = fopen(name, "r");
    CHECK(file != NULL);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    const char *end = strrchr(text, ')');
    CHECK(end != NULL);
    return end[2] == 'S';
}

static pid_t own_thread(void)
{
    return (pid_t)syscall(SYS_gettid);
}

static struct call_rcu_data *waiting, *blocking;
static int is_blocked, is_let_go, frees_itself;
static pid_t forker, freer;

static void blocks(struct rcu_head *head)
{
    free(head);
    STORE(is_blocked, 1);
    AWAIT(LOAD(is_let_go));
    if (frees_itself)
        call_rcu_data_free(waiting);
    ADD(called, 1);
}

static void in_child(void)
{
    call_rcu_after_fork_child();
    rcu_barrier();
    CHECK(LOAD(called) == LOAD(pushed));
    /* New workers use the memory of freed ones. */
    for (int round = 0; round < 3; round++) {
        struct call_rcu_data *own = create_call_rcu_data(0, -1);
        CHECK(own != NULL);
        set_thread_call_rcu_data(own);
        push();
        rcu_barrier();
        CHECK(LOAD(called) == LOAD(pushed));
        set_thread_call_rcu_data(NULL);
        call_rcu_data_free(own);
    }
    synchronize_rcu();
    _exit(0);
}

static void in_parent(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *forks(void *argument)
{
    (void)argument;
    STORE(forker, own_thread());
    call_rcu_before_fork();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        in_child();
    }
    call_rcu_after_fork_parent();
    in_parent(child);
    return NULL;
}

static void *frees(void *argument)
{
    (void)argument;
    STORE(freer, own_thread());
    call_rcu_data_free(waiting);
    return NULL;
}

/* A fork has paused the queue of a worker that is freed, and waits for a callback. */
static void freed_in_a_fork(int by_callback)
{
    struct holder holder;
    frees_itself = by_callback;
    STORE(is_blocked, 0);
    STORE(is_let_go, 0);
    STORE(forker, 0);
    STORE(freer, 0);
    waiting = create_call_rcu_data(0, -1);
    blocking = create_call_rcu_data(0, -1);
    CHECK(waiting != NULL && blocking != NULL);
    struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
    CHECK(head != NULL);
    set_thread_call_rcu_data(blocking);
    ADD(pushed, 1);
    call_rcu(head, blocks);
    AWAIT(LOAD(is_blocked));
    hold(&holder);
    set_thread_call_rcu_data(waiting);
    for (int each = 0; each < 100; each++)
        push();
    set_thread_call_rcu_data(NULL);
    pthread_t first = started(forks, NULL);
    AWAIT(LOAD(forker) != 0);
    /* The fork has paused the first worker. */
    AWAIT(sleeps(LOAD(forker)));
    pthread_t second = first;
    if (!by_callback) {
        second = started(frees, NULL);
        AWAIT(LOAD(freer) != 0);
        for (int each = 0; each < 1000; each++)
            sched_yield();
    }
    STORE(is_let_go, 1);
    CHECK(pthread_join(first, NULL) == 0);
    if (!by_callback)
        CHECK(pthread_join(second, NULL) == 0);
    let_go(&holder);
    rcu_barrier();
    CHECK(LOAD(called) == LOAD(pushed));
    call_rcu_data_free(blocking);
}

/* A worker that is made while a fork is under way calls nothing before the fork is over. */
static void made_in_a_fork(void)
{
    frees_itself = 0;
    STORE(is_blocked, 0);
    STORE(is_let_go, 0);
    STORE(forker, 0);
    blocking = create_call_rcu_data(0, -1);
    CHECK(blocking != NULL);
    struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
    CHECK(head != NULL);
    set_thread_call_rcu_data(blocking);
    ADD(pushed, 1);
    call_rcu(head, blocks);
    AWAIT(LOAD(is_blocked));
    pthread_t thread = started(forks, NULL);
    AWAIT(LOAD(forker) != 0);
    AWAIT(sleeps(LOAD(forker)));
    struct call_rcu_data *own = create_call_rcu_data(0, -1);
    CHECK(own != NULL);
    set_thread_call_rcu_data(own);
    int before = LOAD(called);
    push();
    for (int each = 0; each < 1000; each++) {
        sched_yield();
        CHECK(LOAD(called) == before);
    }
    STORE(is_let_go, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    set_thread_call_rcu_data(NULL);
    rcu_barrier();
    CHECK(LOAD(called) == LOAD(pushed));
    call_rcu_data_free(own);
    call_rcu_data_free(blocking);
}

/* The thread that forks frees workers between the hooks. */
static void freed_by_the_forker(void)
{
    struct holder holder;
    struct call_rcu_data *own = create_call_rcu_data(0, -1);
    CHECK(own != NULL);
    hold(&holder);
    set_thread_call_rcu_data(own);
    push();
    set_thread_call_rcu_data(NULL);
    call_rcu_before_fork();
    call_rcu_data_free(own);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        in_child();
    call_rcu_after_fork_parent();
    in_parent(child);
    let_go(&holder);
    rcu_barrier();
    CHECK(LOAD(called) == LOAD(pushed));
}

static int workers_made, barriers_done, pushes_done;
static struct call_rcu_data *shared;

static void *makes(void *argument)
{
    (void)argument;
    while (!LOAD(stop)) {
        struct call_rcu_data *own = create_call_rcu_data(0, -1);
        CHECK(own != NULL);
        STORE(shared, own);
        set_thread_call_rcu_data(own);
        push();
        STORE(shared, (struct call_rcu_data *)NULL);
        call_rcu_data_free(own);
        set_thread_call_rcu_data(NULL);
        ADD(workers_made, 1);
    }
    return NULL;
}

/* Pushes to workers that other threads free. */
static void *pushes(void *argument)
{
    (void)argument;
    while (!LOAD(stop)) {
        set_thread_call_rcu_data(LOAD(shared));
        push();
        ADD(pushes_done, 1);
        if (LOAD(pushed) - LOAD(called) > 10000)
            rcu_barrier();
    }
    return NULL;
}

static int under_way;

static void counted(struct rcu_head *head)
{
    free(head);
    ADD(under_way, -1);
}

/* A barrier finds callbacks of a worker that other threads free. */
static void *waits(void *argument)
{
    (void)argument;
    int own_calls = 0;
    while (!LOAD(stop)) {
        set_thread_call_rcu_data(LOAD(shared));
        struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
        CHECK(head != NULL);
        ADD(under_way, 1);
        call_rcu(head, counted);
        rcu_barrier();
        CHECK(LOAD(under_way) == 0);
        ADD(barriers_done, 1);
        own_calls++;
    }
    CHECK(own_calls > 0);
    return NULL;
}

static void storm(void)
{
    pthread_t threads[4] = {started(makes, NULL), started(makes, NULL), started(pushes, NULL), started(waits, NULL)};
    for (int round = 0; round < 100; round++) {
        int made = LOAD(workers_made), barriers = LOAD(barriers_done), pushes_before = LOAD(pushes_done);
        call_rcu_before_fork();
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            call_rcu_after_fork_child();
            rcu_barrier();
            set_thread_call_rcu_data(create_call_rcu_data(0, -1));
            int before = LOAD(called);
            push();
            rcu_barrier();
            CHECK(LOAD(called) == before + 1);
            synchronize_rcu();
            _exit(0);
        }
        call_rcu_after_fork_parent();
        in_parent(child);
        AWAIT(LOAD(workers_made) > made && LOAD(barriers_done) > barriers && LOAD(pushes_done) > pushes_before);
    }
    STORE(stop, 1);
    for (int each = 0; each < 4; each++)
        CHECK(pthread_join(threads[each], NULL) == 0);
    rcu_barrier();
    CHECK(LOAD(called) == LOAD(pushed));
}

enum { HEADS = 1024 };
static struct rcu_head heads[HEADS];
static int in_use[HEADS], is_frozen, is_thawed;

static void free_head(struct rcu_head *head)
{
    STORE(in_use[head - heads], 0);
}

/* Pushes without malloc after the first pushes, because a fork waits for malloc's locks. */
static void *pushes_for_ever(void *argument)
{
    set_thread_call_rcu_data((struct call_rcu_data *)argument);
    for (unsigned next = 0; !LOAD(stop); next = (next + 1) % HEADS)
        if (!LOAD(in_use[next])) {
            STORE(in_use[next], 1);
            call_rcu(&heads[next], free_head);
            ADD(pushes_done, 1);
        }
    return NULL;
}

static void freezes(int signal)
{
    (void)signal;
    STORE(is_frozen, 1);
    AWAIT(LOAD(is_thawed));
    STORE(is_frozen, 0);
}

/* A thread that the child does not have was in the middle of a push to a worker, which is freed before the fork or in the child. */
static void frozen_pushes(int freed_before)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = freezes;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    struct call_rcu_data *own = create_call_rcu_data(0, -1);
    CHECK(own != NULL);
    STORE(stop, 0);
    pthread_t thread = started(pushes_for_ever, own);
    if (freed_before)
        call_rcu_data_free(own);
    /* The thread's first uses of the library, and of the worker that takes over, are behind it. */
    int pushes_before = LOAD(pushes_done);
    AWAIT(LOAD(pushes_done) > pushes_before + 1);
    for (int round = 0; round < 100; round++) {
        STORE(is_thawed, 0);
        /* Freeing waits for pushes that have begun, not for pushes that begin later. */
        call_rcu_before_fork();
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        AWAIT(LOAD(is_frozen));
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            call_rcu_after_fork_child();
            struct call_rcu_data *again[8];
            for (int each = 0; each < 8; each++)
                CHECK((again[each] = create_call_rcu_data(0, -1)) != NULL);
            for (int each = 0; each < 8; each++)
                call_rcu_data_free(again[each]);
            rcu_barrier();
            _exit(0);
        }
        call_rcu_after_fork_parent();
        STORE(is_thawed, 1);
        AWAIT(!LOAD(is_frozen));
        in_parent(child);
    }
    STORE(stop, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    if (!freed_before)
        call_rcu_data_free(own);
    rcu_barrier();
}

static int waits_done;

static void waits_within(void *argument)
{
    (void)argument;
    rcu_barrier();
    ADD(waits_done, 1);
}

static void *defers_for_ever(void *argument)
{
    (void)argument;
    rcu_register_thread();
    CHECK(rcu_defer_register_thread() == 0);
    while (!LOAD(stop)) {
        defer_rcu(waits_within, NULL);
        rcu_defer_barrier();
    }
    rcu_defer_unregister_thread();
    rcu_unregister_thread();
    return NULL;
}

/* A deferred call waits for the callbacks of call_rcu, whose queue a fork has paused. */
static void barriers_in_deferred_calls(void)
{
    STORE(stop, 0);
    pthread_t thread = started(defers_for_ever, NULL);
    for (int round = 0; round < 50; round++) {
        int before = LOAD(waits_done);
        push();
        call_rcu_before_fork();
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            call_rcu_after_fork_child();
            rcu_barrier();
            CHECK(LOAD(called) == LOAD(pushed));
            _exit(0);
        }
        call_rcu_after_fork_parent();
        in_parent(child);
        AWAIT(LOAD(waits_done) > before);
    }
    STORE(stop, 1);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *forks_for_ever(void *argument)
{
    (void)argument;
    while (!LOAD(stop)) {
        call_rcu_before_fork();
        call_rcu_after_fork_parent();
    }
    return NULL;
}

/* Callbacks run although there is always a thread that is about to fork. */
static void several_forkers(void)
{
    pthread_t threads[4];
    STORE(stop, 0);
    for (int each = 0; each < 4; each++)
        threads[each] = started(forks_for_ever, NULL);
    for (int round = 0; round < 50; round++) {
        push();
        rcu_barrier();
        CHECK(LOAD(called) == LOAD(pushed));
    }
    STORE(stop, 1);
    for (int each = 0; each < 4; each++)
        CHECK(pthread_join(threads[each], NULL) == 0);
}

int main(void)
{
    alarm(300);
    rcu_register_thread();
    rcu_thread_offline();
    for (int round = 0; round < 5; round++) {
        freed_in_a_fork(0);
        freed_in_a_fork(1);
        freed_by_the_forker();
        made_in_a_fork();
    }
    storm();
    barriers_in_deferred_calls();
    several_forkers();
    frozen_pushes(0);
    frozen_pushes(1);
    printf("%d workers, %d pushes, %d barriers\n", workers_made, pushed, barriers_done);
    return 0;
}
