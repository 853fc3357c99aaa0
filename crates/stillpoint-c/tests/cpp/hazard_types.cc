// The requirements of [saferecl.hp] on types, checked by the compiler.

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>

#include "stillpoint/hazard_pointer.hpp"

namespace sp = stillpoint;

struct incomplete;
static_assert(sizeof(sp::hazard_pointer_obj_base<incomplete> *) == sizeof(void *));
struct node : sp::hazard_pointer_obj_base<node> {
    int value = 0;
};

// hp.synopsis
static_assert(std::is_same_v<decltype(sp::make_hazard_pointer()), sp::hazard_pointer>);
static_assert(!noexcept(sp::make_hazard_pointer()), "by the standard it may throw");
static_assert(noexcept(swap(std::declval<sp::hazard_pointer &>(), std::declval<sp::hazard_pointer &>())));
static_assert(std::is_nothrow_swappable_v<sp::hazard_pointer>);

// hp.base.synopsis, hp.base.incomplete
static_assert(std::is_base_of_v<sp::hazard_pointer_obj_base<node, std::default_delete<node>>, node>);
using base = sp::hazard_pointer_obj_base<node>;
static_assert(!std::is_default_constructible_v<base> && !std::is_copy_constructible_v<base>);
static_assert(!std::is_move_constructible_v<base> && !std::is_copy_assignable_v<base>);
static_assert(!std::is_move_assignable_v<base> && !std::is_destructible_v<base>);
static_assert(std::is_copy_constructible_v<node> && std::is_copy_assignable_v<node> && std::is_default_constructible_v<node>);
static_assert(std::is_nothrow_move_constructible_v<node> && std::is_nothrow_move_assignable_v<node>);
static_assert(std::is_same_v<decltype(std::declval<node &>().retire()), void>);
static_assert(noexcept(std::declval<node &>().retire()));
static_assert(noexcept(std::declval<node &>().retire(std::default_delete<node>())));
static_assert(sizeof(base) == 3 * sizeof(void *) && std::is_trivially_copyable_v<node>);

// hp.base.deleter: D is default-constructible and move-assignable; it needs nothing else.
template <class T>
struct least {
    least() = default;
    least(const least &) = delete;
    least &operator=(least &&) = default;
    void operator()(T *object) const { delete object; }
};
struct by_least : sp::hazard_pointer_obj_base<by_least, least<by_least>> {};
struct by_function : sp::hazard_pointer_obj_base<by_function, void (*)(by_function *)> {};
struct by_closure : sp::hazard_pointer_obj_base<by_closure, std::function<void(by_closure *)>> {};
static_assert(noexcept(std::declval<by_closure &>().retire()));

// hp.protectable
using sp::detail::protectable;
static_assert(protectable<sp::hazard_pointer_obj_base, node>::value);
static_assert(protectable<sp::hazard_pointer_obj_base, by_least>::value);
struct further : node {};
static_assert(!protectable<sp::hazard_pointer_obj_base, further>::value);
struct secretly : private sp::hazard_pointer_obj_base<secretly> {};
static_assert(!protectable<sp::hazard_pointer_obj_base, secretly>::value);
struct virtually : virtual sp::hazard_pointer_obj_base<virtually> {};
static_assert(!protectable<sp::hazard_pointer_obj_base, virtually>::value);
struct beside : node, sp::hazard_pointer_obj_base<beside> {};
static_assert(!protectable<sp::hazard_pointer_obj_base, beside>::value);

// hp.class.synopsis
using sp::hazard_pointer;
static_assert(std::is_nothrow_default_constructible_v<hazard_pointer> && std::is_nothrow_destructible_v<hazard_pointer>);
static_assert(std::is_nothrow_move_constructible_v<hazard_pointer> && std::is_nothrow_move_assignable_v<hazard_pointer>);
static_assert(!std::is_copy_constructible_v<hazard_pointer> && !std::is_copy_assignable_v<hazard_pointer>);
using own = hazard_pointer &;
static_assert(std::is_same_v<decltype(std::declval<const hazard_pointer &>().empty()), bool>);
static_assert(noexcept(std::declval<const hazard_pointer &>().empty()));
using source = const std::atomic<node *> &;
static_assert(std::is_same_v<decltype(std::declval<own>().protect(std::declval<source>())), node *>);
static_assert(noexcept(std::declval<own>().protect(std::declval<source>())));
static_assert(std::is_same_v<decltype(std::declval<own>().try_protect(std::declval<node *&>(), std::declval<source>())), bool>);
static_assert(noexcept(std::declval<own>().try_protect(std::declval<node *&>(), std::declval<source>())));
static_assert(noexcept(std::declval<own>().reset_protection(std::declval<const node *>())));
static_assert(noexcept(std::declval<own>().reset_protection(std::declval<node *>())));
static_assert(noexcept(std::declval<own>().reset_protection(nullptr)) && noexcept(std::declval<own>().reset_protection()));
static_assert(noexcept(std::declval<own>().swap(std::declval<own>())));
static_assert(std::is_same_v<decltype(std::declval<own>() = hazard_pointer()), hazard_pointer &>);

int main()
{
    hazard_pointer hazard = sp::make_hazard_pointer();
    std::atomic<node *> link{new node};
    hazard.protect(link)->retire();
    (new by_least)->retire();
    (new by_function)->retire([](by_function *object) { delete object; });
    (new by_closure)->retire([](by_closure *object) { delete object; });
    hazard = {};
    sp::hazard_pointer_clean_up();
}
