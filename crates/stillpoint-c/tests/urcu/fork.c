/* Tests of the hooks around a fork: the child calls the callbacks that the parent had queued. */
#include "flavour.h"

#include <sys/wait.h>

static int called, hooked[3];

static void count(struct rcu_head *head)
{
    free(head);
    ADD(called, 1);
}

static void push(void)
{
    struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
    CHECK(head != NULL);
    call_rcu(head, count);
}

static void before_fork(void *priv)
{
    CHECK(priv == hooked);
    hooked[0]++;
    /* A hook may push callbacks. */
    push();
}

static void after_parent(void *priv)
{
    CHECK(priv == hooked);
    hooked[1]++;
}

static void after_child(void *priv)
{
    CHECK(priv == hooked);
    hooked[2]++;
}

static void *queues(void *argument)
{
    set_thread_call_rcu_data((struct call_rcu_data *)argument);
    for (int each = 0; each < 10; each++)
        push();
    return NULL;
}

static void deferred(void *argument)
{
    (void)argument;
    ADD(called, 1);
}

#ifdef FLAVOUR_BP
static int is_reading;

static void reads(struct rcu_head *head)
{
    rcu_read_lock();
    STORE(is_reading, 1);
    AWAIT(LOAD(is_reading) == 2);
    rcu_read_unlock();
    free(head);
}

/* Without the hooks of call_rcu, the hook of bp ends the other threads' readers, even if earlier hooks were refused. */
static void only_bp(void)
{
    struct holder holder;
    hold(&holder);
    urcu_bp_before_fork();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        call_rcu_after_fork_child();
        urcu_bp_after_fork_child();
        synchronize_rcu();
        _exit(0);
    }
    urcu_bp_after_fork_parent();
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    let_go(&holder);
}
#endif

int main(void)
{
#ifdef FLAVOUR_BP
    only_bp();
#endif
    struct urcu_atfork hooks = {before_fork, after_parent, after_child, hooked};
    urcu_register_rculfhash_atfork(&hooks);
    urcu_register_rculfhash_atfork(&hooks);
    rcu_register_thread();
    struct holder holder;
    rcu_thread_offline();
    hold(&holder);
    /* Callbacks are pushed to three queues. */
    struct call_rcu_data *own = create_call_rcu_data(0, -1);
    CHECK(own != NULL);
    CHECK(pthread_join(started(queues, own), NULL) == 0);
    CHECK(pthread_join(started(queues, NULL), NULL) == 0);
    for (int each = 0; each < 10; each++)
        defer_rcu(deferred, NULL);
    set_thread_call_rcu_data(own);
    CHECK(set_cpu_call_rcu_data(0, own) == 0);

    call_rcu_before_fork();
#ifdef FLAVOUR_BP
    urcu_bp_before_fork();
#endif
    CHECK(LOAD(called) == 0 && hooked[0] == 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        call_rcu_after_fork_child();
#ifdef FLAVOUR_BP
        /* The child's default worker is a reader by now, and must stay one. */
        struct rcu_head *head = (struct rcu_head *)malloc(sizeof *head);
        CHECK(head != NULL);
        call_rcu(head, reads);
        AWAIT(LOAD(is_reading) == 1);
        urcu_bp_after_fork_child();
        struct urcu_gp_poll_state state = start_poll_synchronize_rcu();
        CHECK(!poll_state_synchronize_rcu(state));
        STORE(is_reading, 2);
        synchronize_rcu();
#endif
        CHECK(hooked[0] == 1 && hooked[1] == 0 && hooked[2] == 1);
        /* The child does not have the thread that is in the section. */
        rcu_barrier();
        rcu_defer_barrier();
        CHECK(LOAD(called) == 31);
        CHECK(get_thread_call_rcu_data() == NULL && get_cpu_call_rcu_data(0) == NULL);
        push();
        rcu_barrier();
        CHECK(LOAD(called) == 32);
        synchronize_rcu();
        rcu_thread_online();
        rcu_read_lock();
        CHECK(rcu_read_ongoing());
        rcu_read_unlock();
        rcu_unregister_thread();
        /* The child forks again. */
        call_rcu_before_fork();
        pid_t grandchild = fork();
        if (grandchild == 0) {
#ifdef FLAVOUR_BP
            urcu_bp_after_fork_child();
#endif
            call_rcu_after_fork_child();
            push();
            rcu_barrier();
            CHECK(LOAD(called) == 34);
            _exit(0);
        }
        call_rcu_after_fork_parent();
        int status;
        CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
        _exit(0);
    }
#ifdef FLAVOUR_BP
    urcu_bp_after_fork_parent();
#endif
    call_rcu_after_fork_parent();
    CHECK(hooked[1] == 1 && hooked[2] == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(LOAD(called) == 0);
    let_go(&holder);
    rcu_barrier();
    rcu_defer_barrier();
    CHECK(LOAD(called) == 31);
    urcu_unregister_rculfhash_atfork(&hooks);
    urcu_unregister_rculfhash_atfork(&hooks);
    call_rcu_before_fork();
    call_rcu_after_fork_parent();
    CHECK(hooked[0] == 1);
    /* Hooks in the wrong order are reported and refused. */
    call_rcu_after_fork_parent();
    call_rcu_after_fork_child();
    CHECK(set_cpu_call_rcu_data(0, NULL) == 0);
    set_thread_call_rcu_data(NULL);
    call_rcu_data_free(own);
    rcu_unregister_thread();
    return 0;
}
