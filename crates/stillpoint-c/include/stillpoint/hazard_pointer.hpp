// SPDX-License-Identifier: MIT OR Apache-2.0
//
// stillpoint/hazard_pointer.hpp: the header <hazard_pointer> of C++26 ([saferecl.hp]), in namespace stillpoint, for C++17 and newer.
//
//     #include <atomic>
//     #include <cstdio>
//     #include <thread>
//     #include "stillpoint/hazard_pointer.hpp"
//
//     struct config : stillpoint::hazard_pointer_obj_base<config> {
//         int mtu;
//         explicit config(int bytes) : mtu(bytes) {}
//     };
//     static std::atomic<config *> current{new config(1500)};
//
//     static void show() {
//         stillpoint::hazard_pointer hazard = stillpoint::make_hazard_pointer(); // keep it as long as the thread runs
//         std::printf("mtu %d\n", hazard.protect(current)->mtu); // not deleted before the next call on hazard
//         hazard.reset_protection();
//     }
//
//     static void replace(config *next) {
//         current.exchange(next, std::memory_order_acq_rel)->retire();
//     }
//
//     int main() {
//         std::thread reader(show);
//         replace(new config(9000));
//         reader.join();
//         stillpoint::hazard_pointer_clean_up();          // what was retired is deleted
//         delete current.load();
//     }
//
// What the standard leaves open:
//   - A thread of the library reclaims objects, one after the other, with no lock of the library held. The first retirement starts the
//     thread. All signals but SIGPROF and those of faults are blocked on it. It has the policy SCHED_OTHER, and the CPUs with which the
//     process began. While the thread runs, retire reclaims nothing. If the thread cannot be started, every 256th retirement tries again;
//     a retirement outside regions of rcu.hpp that cannot start the thread reclaims objects itself. hazard_pointer_clean_up reclaims on the
//     calling thread the objects that were still protected when the library's thread reached them, and all objects while there is no such
//     thread.
//   - In one point this is not what the standard requires: the number of objects that wait only for their deleters has no bound. It
//     depends on how fast deleters run.
//   - protect costs a store and four loads, and a full fence where the kernel has no membarrier(2). A hazard_pointer that has protected
//     something, and is then not used for a while, makes the thread that reclaims interrupt the processors that run the process: destroy
//     it before a long pause.
//   - make_hazard_pointer is lock-free, and costs some ten nanoseconds: keep a hazard_pointer rather than make one for each access. It
//     allocates when there are more hazard pointers than ever before; if there is neither memory nor room in the library's reserve, the
//     process ends. A hazard pointer takes 128 bytes.
//   - A hazard_pointer may be moved to another thread while it protects, and may outlive the thread that made it.
//   - From retire until its deleter is called, an object must not be assigned to: that would overwrite what the library keeps in it.
//     If all files of a program define STILL_CHECKED, such an assignment, a second retire, and the use of an empty hazard_pointer end
//     the program with a message; then hazard_pointer_obj_base is not trivially copyable.
//   - A deleter may do anything that other code may, except wait for other deleters.
//   - The end of a program reclaims nothing: call hazard_pointer_clean_up if deleters have to run.
//   - A child of fork reclaims retired objects at its next retirement or clean-up. Objects that other threads retire while fork runs may
//     be lost in the child: they stay in memory. rcu.hpp states when fork waits for a deleter that is running. Objects that the parent's
//     other threads protected stay protected in the child.
#ifndef STILLPOINT_HAZARD_POINTER_HPP
#define STILLPOINT_HAZARD_POINTER_HPP

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "stillpoint/hazard_pointer.hpp needs C++17 or newer"
#endif

#include <atomic>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "stillpoint/reclamation.h"

namespace stillpoint {

/// Base of a class T whose objects are protected: struct T : hazard_pointer_obj_base<T>. It takes three words, and room for the deleter
/// unless that is an empty class.
template <class T, class D = std::default_delete<T>>
class hazard_pointer_obj_base {
public:
    /// Retires the object: d(this object) is called when no hazard pointer protects it.
    void retire(D d = D()) noexcept
    {
        static_assert(detail::protectable<stillpoint::hazard_pointer_obj_base, T>::value,
                      "T must have one base hazard_pointer_obj_base<T, D>, which is public and not virtual, and no other");
        detail::begin_retirement(still_retirable_);
        still_retirable_.deleter() = std::move(d);
        still_hazard_retire_(std::addressof(still_retirable_), static_cast<T *>(this), &still_reclaim_);
    }

protected:
    hazard_pointer_obj_base() = default;
    hazard_pointer_obj_base(const hazard_pointer_obj_base &) = default;
    hazard_pointer_obj_base(hazard_pointer_obj_base &&) = default;
    hazard_pointer_obj_base &operator=(const hazard_pointer_obj_base &) = default;
    hazard_pointer_obj_base &operator=(hazard_pointer_obj_base &&) = default;
    ~hazard_pointer_obj_base() = default;

private:
    static void still_reclaim_(void *node) noexcept
    {
        hazard_pointer_obj_base *const base = static_cast<hazard_pointer_obj_base *>(node);
        detail::reclaim(base->still_retirable_, static_cast<T *>(base));
    }

    detail::retirable<D, 3> still_retirable_ = detail::retirable<D, 3>();
};

class hazard_pointer;
hazard_pointer make_hazard_pointer();

/// Owns a hazard pointer, or is empty. For one thread at a time.
class hazard_pointer {
public:
    hazard_pointer() noexcept = default;

    hazard_pointer(hazard_pointer &&other) noexcept : hazard_(other.hazard_) { other.hazard_ = {}; }

    hazard_pointer &operator=(hazard_pointer &&other) noexcept
    {
        if (this != &other) {
            destroy();
            hazard_ = other.hazard_;
            other.hazard_ = {};
        }
        return *this;
    }

    ~hazard_pointer() { destroy(); }

    /// Whether this owns no hazard pointer.
    [[nodiscard]] bool empty() const noexcept { return hazard_.slot == nullptr; }

    /// Protects the object that `src` points to, and returns its address. Lock-free: tries again when `src` has changed.
    template <class T>
    T *protect(const std::atomic<T *> &src) noexcept
    {
        T *ptr = src.load(std::memory_order_relaxed);
        while (!try_protect(ptr, src)) {
        }
        return ptr;
    }

    /// Protects *ptr if `src` still points to it. Otherwise protects nothing, and sets ptr to the pointer in `src`.
    template <class T>
    bool try_protect(T *&ptr, const std::atomic<T *> &src) noexcept
    {
        T *const old = ptr;
        reset_protection(old);
        // Acquire: pairs with the release that linked the object.
        ptr = src.load(std::memory_order_acquire);
        if (old == ptr)
            return true;
        reset_protection();
        return false;
    }

    /// Protects *ptr, which must not be retired yet. Protects nothing if ptr is null.
    template <class T>
    void reset_protection(const T *ptr) noexcept
    {
        static_assert(detail::protectable<stillpoint::hazard_pointer_obj_base, T>::value,
                      "T must have one base hazard_pointer_obj_base<T, D>, which is public and not virtual, and no other");
        vouch();
        if (ptr == nullptr)
            return reset_protection();
        set(const_cast<T *>(ptr));
        // Orders this store before the loads that follow. Pairs with the heavy fence of the thread that reclaims.
        detail::reader_fence((hazard_.token & STILL_RCU_FULL_FENCE_) != 0);
    }

    /// Ends the protection.
    void reset_protection(std::nullptr_t = nullptr) noexcept { set(nullptr); }

    void swap(hazard_pointer &other) noexcept
    {
        const still_hazard_ mine = hazard_;
        hazard_ = other.hazard_;
        other.hazard_ = mine;
    }

private:
    explicit hazard_pointer(still_hazard_ hazard) noexcept : hazard_(hazard) {}

    // What is loaded from now on is newer than what was unlinked before the token of this moment was started: no fence is needed for this
    // hazard pointer. It is in no region, and not away, from when it is made.
    void vouch() noexcept
    {
        must_own();
        const uint64_t *const address = reinterpret_cast<const uint64_t *>(hazard_.token & ~uintptr_t{STILL_RCU_FULL_FENCE_});
        uint64_t *const state = reinterpret_cast<uint64_t *>(reinterpret_cast<unsigned char *>(hazard_.slot) - STILL_RCU_HAZARD_);
        // Acquire: pairs with the read-modify-write of start.
        const uint64_t word = __atomic_load_n(address, __ATOMIC_ACQUIRE) | STILL_RCU_IDLE_;
        // Release: pairs with the acquire load of check. What the slot has protected comes before.
        if (__builtin_expect(__atomic_load_n(state, __ATOMIC_RELAXED) != word, 0))
            __atomic_store_n(state, word, __ATOMIC_RELEASE);
    }

    void must_own() const noexcept
    {
#ifdef STILL_CHECKED
        if (empty()) {
            std::fprintf(stderr, "stillpoint: a hazard_pointer that owns nothing was used: make one with make_hazard_pointer\n");
            std::abort();
        }
#endif
    }

    void set(void *object) noexcept
    {
        must_own();
        // Release: pairs with the acquire load of a scan. The accesses to the object come before its deleter.
        __atomic_store_n(hazard_.slot, object, __ATOMIC_RELEASE);
    }

    void destroy() noexcept
    {
        if (hazard_.slot != nullptr)
            still_hazard_free_(hazard_.slot);
    }

    still_hazard_ hazard_ = {};

    friend hazard_pointer make_hazard_pointer();
};

/// Makes a hazard pointer, which protects nothing, and returns its owner.
inline hazard_pointer make_hazard_pointer()
{
    return hazard_pointer(still_hazard_make_(STILL_RECLAMATION_LAYOUT_));
}

inline void swap(hazard_pointer &a, hazard_pointer &b) noexcept
{
    a.swap(b);
}

/// Beyond the standard: blocks until the objects that were retired before are reclaimed, except those that hazard pointers protect. In a
/// deleter, or in any destructor, callback or hook that the library calls, returns at once.
inline void hazard_pointer_clean_up() noexcept
{
    still_hazard_clean_up_();
}

/// Beyond the standard: a new handle of the domain, for still_domain_stats of stillpoint.h. Free it with still_domain_free. NULL if there
/// is no memory.
inline still_domain *hazard_pointer_domain_handle() noexcept
{
    return still_hazard_domain_();
}

} // namespace stillpoint

#endif
