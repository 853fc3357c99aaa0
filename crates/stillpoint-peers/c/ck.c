/* Concurrency Kit's epoch reclamation. */
#include <ck_epoch.h>

#include "peer.h"

_Static_assert(sizeof(ck_epoch_entry_t) <= sizeof(((struct element *)0)->head), "room for the callback head");

/* A record. It stays in the epoch's list until the epoch is freed, and is freed with it. */
struct member {
    ck_epoch_record_t record;
    struct member *next;
};

struct stillpoint_ck {
    ck_epoch_t epoch;
    _Atomic(struct member *) members;
};

/* Makes an epoch. Returns NULL if there is no memory. */
struct stillpoint_ck *stillpoint_ck_new(void)
{
    struct stillpoint_ck *ck = malloc(sizeof *ck);

    if (ck != NULL) {
        ck_epoch_init(&ck->epoch);
        atomic_init(&ck->members, NULL);
    }
    return ck;
}

/* Frees the epoch. No thread may be a member any more. */
void stillpoint_ck_free(struct stillpoint_ck *ck)
{
    struct member *member = atomic_load_explicit(&ck->members, memory_order_acquire);

    while (member != NULL) {
        struct member *next = member->next;

        free(member);
        member = next;
    }
    free(ck);
}

/* Returns a record for the calling thread: one that another thread has left, or a new one. NULL if there is no memory. */
ck_epoch_record_t *stillpoint_ck_join(struct stillpoint_ck *ck)
{
    ck_epoch_record_t *record = ck_epoch_recycle(&ck->epoch, NULL);
    struct member *member;

    if (record != NULL)
        return record;
    member = aligned_alloc(_Alignof(struct member), sizeof *member);
    if (member == NULL)
        return NULL;
    ck_epoch_register(&ck->epoch, &member->record, NULL);
    member->next = atomic_load_explicit(&ck->members, memory_order_relaxed);
    /* Release publishes the member to the acquire load in `stillpoint_ck_free`. */
    while (!atomic_compare_exchange_weak_explicit(&ck->members, &member->next, member, memory_order_release,
                                                  memory_order_relaxed))
        ;
    return &member->record;
}

/* Leaves a record. All elements that were retired through it must have been freed. */
void stillpoint_ck_leave(ck_epoch_record_t *record)
{
    ck_epoch_unregister(record);
}

struct read_outcome stillpoint_ck_read(ck_epoch_record_t *record, const struct read_job *job)
{
    struct read_outcome outcome;

    READ_SLOTS(job, &outcome, ck_epoch_begin(record, NULL), ck_epoch_end(record, NULL), (void)0, (void)0);
    return outcome;
}

/* Hands over an unlinked element; a poll or the barrier calls `release` with its head. */
void stillpoint_ck_retire(ck_epoch_record_t *record, struct element *element, ck_epoch_cb_t *release)
{
    ck_epoch_call(record, (ck_epoch_entry_t *)element->head, release);
}

void stillpoint_ck_poll(ck_epoch_record_t *record)
{
    (void)ck_epoch_poll(record);
}

void stillpoint_ck_barrier(ck_epoch_record_t *record)
{
    ck_epoch_barrier(record);
}

/* Runs OPERATION with `record`, the only one of its epoch, then AFTER. */
#define MICRO(iterations, OPERATION, AFTER)                                                \
    do {                                                                                   \
        struct stillpoint_ck *ck = stillpoint_ck_new();                                    \
        ck_epoch_record_t *record = ck == NULL ? NULL : stillpoint_ck_join(ck);            \
        if (record == NULL) {                                                              \
            fputs("out of memory: no room for an epoch record\n", stderr);                 \
            abort();                                                                       \
        }                                                                                  \
        REPEAT(iterations, OPERATION);                                                     \
        AFTER;                                                                             \
        stillpoint_ck_leave(record);                                                       \
        stillpoint_ck_free(ck);                                                            \
    } while (0)

void stillpoint_ck_micro_pin(uint64_t iterations)
{
    MICRO(iterations, { ck_epoch_begin(record, NULL); ck_epoch_end(record, NULL); }, (void)0);
}

static void release_object(ck_epoch_entry_t *entry)
{
    free(entry);
}

/* Replaces the object and retires the old one. After a batch it polls, which scans all records after a fence. */
static void retire_object(ck_epoch_record_t *record, _Atomic(void *) *shared, uint64_t number)
{
    void *old = exchange_object(shared, new_object(number));

    if (old != NULL)
        ck_epoch_call(record, old, release_object);
    if ((number + 1) % RETIRED_TOGETHER == 0)
        (void)ck_epoch_poll(record);
}

void stillpoint_ck_micro_retire(uint64_t iterations)
{
    _Atomic(void *) shared = NULL;

    MICRO(iterations, retire_object(record, &shared, i_), ck_epoch_barrier(record));
    free(exchange_object(&shared, NULL));
}

void stillpoint_ck_micro_heavy(uint64_t iterations)
{
    MICRO(iterations, ck_epoch_synchronize(record), (void)0);
}
