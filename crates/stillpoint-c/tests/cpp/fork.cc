// Deleters when the process forks: handlers of the program, deleters that fork, and retirements during the fork.

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "check.hpp"
#include "stillpoint/hazard_pointer.hpp"
#include "stillpoint/rcu.hpp"

namespace sp = stillpoint;

#ifndef FORKS
#define FORKS 30
#endif

namespace {

struct by_rcu : sp::rcu_obj_base<by_rcu>, Witness {};
struct by_hazard : sp::hazard_pointer_obj_base<by_hazard>, Witness {};

std::atomic<bool> handlers_are_on{false};
std::atomic<int> handled{0};

void uses_everything()
{
    if (!handlers_are_on)
        return;
    {
        std::scoped_lock region(sp::rcu_default_domain());
        sp::hazard_pointer hazard = sp::make_hazard_pointer();
        std::atomic<by_hazard *> link{new by_hazard};
        hazard.protect(link)->retire();
        (new by_rcu)->retire();
    }
    sp::rcu_synchronize();
    sp::rcu_barrier();
    sp::hazard_pointer_clean_up();
    CHECK(alive == 0);
    ++handled;
}

/// Before main, and before the first use of the library.
__attribute__((constructor)) void ask()
{
    CHECK(pthread_atfork(uses_everything, uses_everything, uses_everything) == 0);
}

/// Waits for a child, which must succeed.
void succeeds(pid_t child)
{
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/// The calling thread is the only one of a child.
void child_goes_on()
{
    sp::rcu_synchronize();
    sp::rcu_barrier();
    sp::hazard_pointer_clean_up();
    const int before = alive;
    (new by_rcu)->retire(); // threads of the child delete them
    (new by_hazard)->retire();
    while (alive != before)
        sched_yield();
}

// The library's handlers are the innermost ones. So a program's handlers may retire and wait, whenever they were registered.
void handlers_use_everything()
{
    handlers_are_on = true;
    for (int turn = 0; turn < 10; turn++) {
        handled = 0;
        const pid_t child = fork();
        CHECK(handled == 2);
        if (child == 0) {
            alarm(60);
            child_goes_on();
            _exit(0);
        }
        succeeds(child);
    }
    handlers_are_on = false;
}

// A deleter forks while another thread waits for it in a barrier: the child continues after the deleter, and its other threads may wait.
void a_deleter_forks_beside_a_barrier()
{
    static std::atomic<pid_t> child;
    static int number;
    for (int turn = 0; turn < 10; turn++) {
        child = 0;
        static std::atomic<bool> may_fork;
        may_fork = false;
        sp::rcu_retire(&number, [](int *) {
            while (!may_fork)
                sched_yield();
            usleep(1000); // the barrier has begun to wait
            child = fork();
            if (child == 0) {
                alarm(60);
                (new by_rcu)->retire();
                std::thread([] {
                    sp::rcu_barrier();
                    child_goes_on();
                    _exit(alive == 0 ? 0 : 1);
                }).detach();
            }
        });
        std::thread other([] {
            may_fork = true;
            sp::rcu_barrier();
        });
        other.join();
        succeeds(child);
    }
}

/// There is a round for each fork. Objects of earlier rounds were retired before the fork. `round_number` is the current round.
constexpr unsigned ROUNDS = 2 * FORKS + 1, THREADS = 4;
std::atomic<unsigned> round_number{0}, retired[ROUNDS], evaluated[ROUNDS], round_of_thread[THREADS];

struct counts {
    template <class T>
    void operator()(T *found) const
    {
        ++evaluated[found->round];
        delete found;
    }
};

struct counted_by_rcu : sp::rcu_obj_base<counted_by_rcu, counts> {
    unsigned round;
    explicit counted_by_rcu(unsigned now) : round(now) {}
};

struct counted_by_hazard : sp::hazard_pointer_obj_base<counted_by_hazard, counts> {
    unsigned round;
    explicit counted_by_hazard(unsigned now) : round(now) {}
};

/// Retires until the last round.
void retire_on(unsigned self)
{
    for (unsigned now = 0; now + 1 < ROUNDS; now = round_number) {
        round_of_thread[self] = now;
        if (retired[now] - evaluated[now] > 20000) {
            sched_yield();
            continue;
        }
        for (int number = 0; number < 16; number++) {
            (new counted_by_rcu(now))->retire();
            (new counted_by_hazard(now))->retire();
            retired[now] += 2;
        }
    }
    round_of_thread[self] = ROUNDS;
}

/// Forks when all objects of earlier rounds were retired, while other threads retire more. The child checks that none was lost.
void fork_beside_retirements()
{
    const unsigned now = ++round_number;
    for (const std::atomic<unsigned> &other : round_of_thread)
        while (other < now)
            sched_yield();
    const pid_t child = fork();
    if (child != 0)
        return succeeds(child);
    alarm(60);
    std::thread([now] {
        sp::rcu_barrier();
        sp::hazard_pointer_clean_up();
        for (unsigned round = 0; round < now; round++)
            CHECK(evaluated[round] == retired[round]);
        child_goes_on();
        _exit(0);
    }).detach();
}

// The child deletes the objects that were retired before the fork, whichever thread forks, and whatever other threads retire meanwhile.
void nothing_that_was_retired_before_is_lost()
{
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < THREADS; number++)
        threads.emplace_back(retire_on, number);
    const pid_t self = getpid();
    for (int turn = 0; turn < FORKS; turn++) {
        fork_beside_retirements();
        while (getpid() != self)
            pause();
        static int nothing;
        sp::rcu_retire(&nothing, [](int *) { fork_beside_retirements(); });
        sp::rcu_barrier();
    }
    for (std::thread &thread : threads)
        thread.join();
    sp::rcu_barrier();
    sp::hazard_pointer_clean_up();
    for (unsigned round = 0; round < ROUNDS; round++)
        CHECK(evaluated[round] == retired[round]);
}

// fork within a region, while a deleter waits for that region.
void a_region_forks_beside_a_deleter_that_synchronizes()
{
    static int nothing;
    for (int turn = 0; turn < 20; turn++) {
        static std::atomic<bool> is_in, is_open;
        is_in = is_open = false;
        sp::rcu_retire(&nothing, [](int *) {
            is_in = true;
            while (!is_open)
                sched_yield();
            sp::rcu_synchronize();
        });
        while (!is_in)
            sched_yield();
        sp::rcu_default_domain().lock();
        is_open = true;
        usleep(static_cast<useconds_t>(turn % 4) * 1000);
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            sp::rcu_default_domain().unlock();
            child_goes_on();
            _exit(0);
        }
        sp::rcu_default_domain().unlock();
        succeeds(child);
        sp::rcu_barrier();
    }
}

std::atomic<int> deleters{0}, forked{0};

/// Forks when two threads have called this.
void fork_together()
{
    ++deleters;
    while (deleters != 2)
        sched_yield();
    const pid_t child = fork();
    if (child != 0) {
        succeeds(child);
        ++forked;
        return;
    }
    alarm(60);
    std::thread([] {
        child_goes_on();
        _exit(0);
    }).detach();
}

struct forks {
    template <class T>
    void operator()(T *found) const
    {
        fork_together();
        delete found;
    }
};

struct forking : sp::hazard_pointer_obj_base<forking, forks> {};

// Two deleters, one of each domain, fork at the same time.
void two_deleters_fork()
{
    static int nothing;
    for (int turn = 0; turn < 20; turn++) {
        deleters = forked = 0;
        sp::rcu_retire(&nothing, [](int *) { fork_together(); });
        (new forking)->retire();
        sp::rcu_barrier();
        sp::hazard_pointer_clean_up();
        CHECK(forked == 2);
    }
}

} // namespace

int main(int, char **arguments)
{
    alarm(300);
    const auto is_asked_for = [=](const char *which) { return arguments[1] == nullptr || arguments[1][0] == *which; };
    if (is_asked_for("a"))
        handlers_use_everything();
    if (is_asked_for("b"))
        a_deleter_forks_beside_a_barrier();
    if (is_asked_for("c"))
        nothing_that_was_retired_before_is_lost();
    if (is_asked_for("d"))
        a_region_forks_beside_a_deleter_that_synchronizes();
    if (is_asked_for("e"))
        two_deleters_fork();
}
