// Shared by the tests of the C++ headers: a check that prints where it failed, a count of objects, and gates between threads.
#ifndef CHECK_HPP
#define CHECK_HPP

#include <sched.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "stillpoint.h"

#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                   \
            std::abort();                                                                                  \
        }                                                                                                  \
    } while (0)

/// The number of living objects.
inline std::atomic<int> alive{0};

/// An object for which a check fails if it is read after its end.
struct Witness {
    static constexpr int THERE = 0x600d;

    std::atomic<int> state{THERE};

    Witness() { ++alive; }
    Witness(const Witness &) { ++alive; }
    Witness &operator=(const Witness &) { return *this; }

    ~Witness()
    {
        state = 0xdead;
        --alive;
    }

    bool there() const { return state == THERE; }
};

/// A gate at which threads wait until it opens. It opens once.
class Gate {
public:
    void open() { is_open = true; }

    void pass() const
    {
        while (!is_open)
            sched_yield();
    }

private:
    std::atomic<bool> is_open{false};
};

inline still_stats stats(still_domain *domain)
{
    still_stats found{};
    found.size = sizeof found;
    CHECK(still_domain_stats(domain, &found) == 0);
    CHECK(still_domain_free(domain) == 0);
    return found;
}

#endif
