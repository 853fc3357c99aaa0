/* Wheels whose timers lie in structs of the program. */
#include "check.h"

enum { MANY = 10000 };

struct connection {
    struct still_timer timer; /* first, so that its address is also that of the struct */
    uint64_t deadline;
    int fired;
};

static struct connection connections[MANY];

int main(void)
{
    struct still_wheel *wheel = still_wheel_new(1000);
    CHECK(wheel != NULL);
    uint64_t next = 0;
    CHECK(still_wheel_next_deadline(wheel, &next) == 0 && still_wheel_pop(wheel) == NULL);
    for (int i = 0; i < MANY; i++) {
        struct connection *connection = &connections[i];
        connection->deadline = 1001 + (uint64_t)i * 7919 % 100000;
        CHECK(still_timer_is_pending(wheel, &connection->timer) == 0);
        CHECK(still_timer_add(wheel, &connection->timer, connection->deadline) == 0);
        CHECK(still_timer_is_pending(wheel, &connection->timer) == 1);
    }
    REFUSED(still_timer_add(wheel, &connections[0].timer, 5), -EEXIST, "already");
    CHECK(still_wheel_len(wheel) == MANY);
    CHECK(still_wheel_next_deadline(wheel, &next) == 1 && next <= 1001 && next > 1000);

    /* Some timers are cancelled, some get a later deadline, and some an earlier one. */
    int left = MANY;
    for (int i = 0; i < MANY; i += 10) {
        CHECK(still_timer_cancel(wheel, &connections[i].timer) == 1);
        CHECK(still_timer_cancel(wheel, &connections[i].timer) == 0);
        memset(&connections[i].timer, 0xaa, sizeof(struct still_timer)); /* its memory is the program's again */
        left--;
    }
    for (int i = 1; i < MANY; i += 10) {
        uint64_t old = connections[i].deadline;
        connections[i].deadline = i % 20 == 1 ? old + 5000 : 1001 + (old - 1001) / 2;
        CHECK(still_timer_reset(wheel, &connections[i].timer, connections[i].deadline) == 1);
    }
    for (uint64_t now = 1000; now < 110000; now += 13) {
        CHECK(still_wheel_advance(wheel, now) == 0);
        int rounds = 0;
        do {
            struct still_timer *timer;
            CHECK(++rounds < 1000); /* a round that pops nothing moves timers */
            while ((timer = still_wheel_pop(wheel)) != NULL) {
                struct connection *connection = (struct connection *)(void *)timer;
                CHECK(connection->deadline <= now && connection->deadline + 13 > now && !connection->fired);
                connection->fired = 1;
                left--;
                memset(timer, 0, sizeof *timer);
            }
        } while (still_wheel_next_deadline(wheel, &next) == 1 && next <= now);
    }
    CHECK(left == 0 && still_wheel_len(wheel) == 0);

    /* A reset adds a timer, and still_wheel_take_any takes timers in any order. */
    CHECK(still_timer_reset(wheel, &connections[1].timer, 1) == 0);
    CHECK(still_timer_reset(wheel, &connections[2].timer, UINT64_MAX) == 0);
    CHECK(still_wheel_take_any(wheel) != NULL && still_wheel_take_any(wheel) != NULL);
    CHECK(still_wheel_take_any(wheel) == NULL && still_wheel_len(wheel) == 0);

    /* A call that only moves timers returns none, and says that more may be due. */
    CHECK(still_wheel_free(wheel) == 0 && (wheel = still_wheel_new(0)) != NULL);
    memset(connections, 0, sizeof connections);
    for (int i = 0; i < 200; i++)
        CHECK(still_timer_add(wheel, &connections[i].timer, 95) == 0);
    CHECK(still_timer_add(wheel, &connections[200].timer, 64) == 0 && still_wheel_advance(wheel, 64) == 0);
    struct still_timer *due;
    int calls = 0;
    while ((due = still_wheel_pop(wheel)) == NULL && ++calls < 10)
        CHECK(still_wheel_next_deadline(wheel, &next) == 1 && next == 64);
    CHECK(due == &connections[200].timer && calls > 0);

    REFUSED(still_timer_add(wheel, NULL, 1), -EINVAL, "NULL");
    REFUSED(still_wheel_next_deadline(wheel, NULL), -EINVAL, "NULL");
    REFUSED(still_wheel_advance(NULL, 1), -EINVAL, "NULL");
    CHECK(still_wheel_free(wheel) == 0);
    REFUSED(still_wheel_len(wheel), -EBADF, "freed");
    return 0;
}
