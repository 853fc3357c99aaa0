// Tests of STILL_CHECKED. Each misuse runs in a child process, which must abort with the right message.
#undef STILL_CHECKED
#define STILL_CHECKED

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "check.hpp"
#include "stillpoint/hazard_pointer.hpp"
#include "stillpoint/rcu.hpp"

namespace sp = stillpoint;

namespace {

/// A deleter that does nothing, so that the object can be used again.
struct keep {
    template <class T>
    void operator()(T *) const
    {
    }
};

template <class T>
struct by_rcu : sp::rcu_obj_base<T, keep> {
    static void wait() { sp::rcu_barrier(); }

    /// Its deleter does not run any more.
    static void hold(const T &) { sp::rcu_default_domain().lock(); }
};

template <class T>
struct by_hazard : sp::hazard_pointer_obj_base<T, keep> {
    static void wait() { sp::hazard_pointer_clean_up(); }

    /// Its deleter does not run any more.
    static void hold(const T &held)
    {
        static sp::hazard_pointer hazard = sp::make_hazard_pointer();
        hazard.reset_protection(&held);
    }
};

template <template <class> class Base>
struct object : Base<object<Base>> {
    int value = 0;
};

/// Runs a misuse in a child, which must abort with these words.
template <class F>
void finds(const char *words, F misuse)
{
    int said[2];
    CHECK(pipe(said) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(dup2(said[1], 2) == 2);
        alarm(60);
        misuse();
        _exit(0);
    }
    close(said[1]);
    std::string text;
    for (char next; read(said[0], &next, 1) == 1;)
        text += next;
    close(said[0]);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(text.find(words) != std::string::npos);
}

template <template <class> class Base>
void retired_objects_are_left_alone()
{
    using type = object<Base>;
    static type first, second;
    finds("assigned to after it was retired", [] {
        type::hold(first);
        first.retire();
        first = second;
    });
    finds("assigned to after it was retired", [] {
        type::hold(first);
        first.retire();
        first = type();
    });
    finds("retired twice", [] {
        type::hold(first);
        first.retire();
        first.retire();
    });
    // Correct uses pass: copies of a retired object are other objects, and an object may be used again after its deleter.
    first.retire();
    type copy(first);
    copy = first;
    copy.retire();
    type::wait();
    for (int turn = 0; turn < 3; turn++) {
        first = second;
        first.retire();
        type::wait();
        copy = first;
    }
}

void empty_hazard_pointers_are_not_used()
{
    static std::atomic<object<by_hazard> *> source{nullptr};
    static object<by_hazard> linked;
    source = &linked;
    finds("owns nothing", [] { sp::hazard_pointer().protect(source); });
    finds("owns nothing", [] { sp::hazard_pointer().reset_protection(); });
    sp::hazard_pointer owner = sp::make_hazard_pointer();
    finds("owns nothing", [&owner] {
        const sp::hazard_pointer moved = std::move(owner);
        owner.reset_protection();
    });
    CHECK(owner.protect(source) == &linked);
    owner.reset_protection();
}

} // namespace

int main()
{
    empty_hazard_pointers_are_not_used();
    retired_objects_are_left_alone<by_rcu>();
    retired_objects_are_left_alone<by_hazard>();
}
