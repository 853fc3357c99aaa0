// The requirements of [saferecl.rcu] on types, checked by the compiler.

#include <functional>
#include <memory>
#include <mutex>
#include <type_traits>

#include "stillpoint/rcu.hpp"

namespace sp = stillpoint;

// rcu.synopsis: each name exists, with these parameters, defaults and exceptions.
static_assert(std::is_same_v<decltype(sp::rcu_default_domain()), sp::rcu_domain &>);
static_assert(noexcept(sp::rcu_default_domain()));
static_assert(std::is_same_v<decltype(sp::rcu_synchronize()), void> && noexcept(sp::rcu_synchronize()));
static_assert(noexcept(sp::rcu_synchronize(sp::rcu_default_domain())));
static_assert(std::is_same_v<decltype(sp::rcu_barrier()), void> && noexcept(sp::rcu_barrier()));
static_assert(noexcept(sp::rcu_barrier(sp::rcu_default_domain())));
static_assert(std::is_same_v<decltype(sp::rcu_retire(static_cast<int *>(nullptr))), void>);
static_assert(!noexcept(sp::rcu_retire(static_cast<int *>(nullptr))), "rcu_retire is the only function that may throw");

// rcu.base.incomplete: T may be incomplete where the base is named; D defaults to default_delete<T>.
struct incomplete;
static_assert(sizeof(sp::rcu_obj_base<incomplete> *) == sizeof(void *));
struct node : sp::rcu_obj_base<node> {
    int value = 0;
};
static_assert(std::is_base_of_v<sp::rcu_obj_base<node, std::default_delete<node>>, node>);

// rcu.base.synopsis: retire is noexcept, and its parameters have defaults; constructors, assignments and the destructor are protected.
static_assert(noexcept(std::declval<node &>().retire()));
static_assert(noexcept(std::declval<node &>().retire(std::default_delete<node>(), sp::rcu_default_domain())));
static_assert(std::is_same_v<decltype(std::declval<node &>().retire()), void>);
using base = sp::rcu_obj_base<node>;
static_assert(!std::is_default_constructible_v<base> && !std::is_copy_constructible_v<base>);
static_assert(!std::is_move_constructible_v<base> && !std::is_copy_assignable_v<base>);
static_assert(!std::is_move_assignable_v<base> && !std::is_destructible_v<base>);
static_assert(std::is_default_constructible_v<node> && std::is_copy_constructible_v<node> && std::is_copy_assignable_v<node>);
static_assert(std::is_nothrow_move_constructible_v<node> && std::is_nothrow_move_assignable_v<node>);

// rcu.base.trivial: trivially copyable if D is; otherwise as D allows.
static_assert(std::is_trivially_copyable_v<node> && std::is_trivially_destructible_v<node>);
static_assert(sizeof(base) == 2 * sizeof(void *), "an empty deleter takes no room");
struct by_function : sp::rcu_obj_base<by_function, void (*)(by_function *)> {};
static_assert(std::is_trivially_copyable_v<by_function>);
struct by_closure : sp::rcu_obj_base<by_closure, std::function<void(by_closure *)>> {};
static_assert(!std::is_trivially_copyable_v<by_closure> && std::is_copy_constructible_v<by_closure>);
template <class T>
struct only_moves {
    std::unique_ptr<int> state;

    void operator()(T *) const {}
};
struct moved : sp::rcu_obj_base<moved, only_moves<moved>> {};
static_assert(!std::is_copy_constructible_v<moved> && std::is_move_constructible_v<moved>);
static_assert(noexcept(std::declval<moved &>().retire()));

// rcu.base.deleter: D is any function object type that takes a T*, also a final class and a type that is no class.
template <class T>
struct last final {
    void operator()(T *object) const { delete object; }
};
struct by_last : sp::rcu_obj_base<by_last, last<by_last>> {};

// rcu.protectable: one base, public and not virtual.
using sp::detail::protectable;
static_assert(protectable<sp::rcu_obj_base, node>::value && protectable<sp::rcu_obj_base, by_last>::value);
struct further : node {};
static_assert(!protectable<sp::rcu_obj_base, further>::value, "its base is that of another type");
struct secretly : private sp::rcu_obj_base<secretly> {};
static_assert(!protectable<sp::rcu_obj_base, secretly>::value);
struct virtually : virtual sp::rcu_obj_base<virtually> {};
static_assert(!protectable<sp::rcu_obj_base, virtually>::value);
struct twice : sp::rcu_obj_base<twice>, sp::rcu_obj_base<twice, last<twice>> {};
static_assert(!protectable<sp::rcu_obj_base, twice>::value);
struct beside : node, sp::rcu_obj_base<beside> {};
static_assert(!protectable<sp::rcu_obj_base, beside>::value);
struct plain {};
static_assert(!protectable<sp::rcu_obj_base, plain>::value);
struct in_the_middle : plain, std::enable_shared_from_this<in_the_middle>, sp::rcu_obj_base<in_the_middle> {};
static_assert(protectable<sp::rcu_obj_base, in_the_middle>::value);

// rcu.domain.synopsis: not copied, not made by programs; lock, try_lock and unlock do not throw.
static_assert(!std::is_copy_constructible_v<sp::rcu_domain> && !std::is_copy_assignable_v<sp::rcu_domain>);
static_assert(!std::is_move_constructible_v<sp::rcu_domain> && !std::is_move_assignable_v<sp::rcu_domain>);
static_assert(!std::is_default_constructible_v<sp::rcu_domain>);
static_assert(std::is_same_v<decltype(std::declval<sp::rcu_domain &>().lock()), void>);
static_assert(std::is_same_v<decltype(std::declval<sp::rcu_domain &>().try_lock()), bool>);
static_assert(std::is_same_v<decltype(std::declval<sp::rcu_domain &>().unlock()), void>);
static_assert(noexcept(std::declval<sp::rcu_domain &>().lock()) && noexcept(std::declval<sp::rcu_domain &>().try_lock()));
static_assert(noexcept(std::declval<sp::rcu_domain &>().unlock()));

// rcu.domain.lockable: what the standard's locks require of a Lockable type.
template class std::unique_lock<sp::rcu_domain>;
template class std::scoped_lock<sp::rcu_domain>;
template class std::lock_guard<sp::rcu_domain>;

// rcu.retire.mandates: a move-only deleter; a pointer to any type with which the deleter can be called.
inline void retires()
{
    sp::rcu_retire(new int(1), only_moves<int>{std::make_unique<int>(1)});
    sp::rcu_retire(static_cast<void *>(nullptr), [](void *) {});
    sp::rcu_retire(new node);
    std::scoped_lock region(sp::rcu_default_domain());
}

int main()
{
    retires();
    sp::rcu_barrier();
}
