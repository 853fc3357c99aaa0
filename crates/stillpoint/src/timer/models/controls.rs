//! A model catches each broken variant: a model that cannot fail proves nothing.

#![cfg(stillpoint_busted)]

use super::waits::{DEADLOCK, ELSEWHERE, SLEPT};
use super::{EARLY, ENDS, PILED_UP, UNORDERED};
use crate::timer::busted::{self, Variant};

/// The model that catches each variant, and its message.
const CAUGHT: &[(Variant, &str, &str)] = &[
    (Variant::ClaimRelaxed, "ends::a_timer_is_armed_after_another_thread_has_cancelled_it", UNORDERED),
    (Variant::ArmRelaxed, "ends::a_timer_is_cancelled_while_it_is_armed", UNORDERED),
    (Variant::FindRelaxed, "ends::a_callback_has_run_when_a_cancellation_says_so", UNORDERED),
    (Variant::FindRelaxed, "ends::a_callback_has_run_when_a_revocation_says_so", UNORDERED),
    (Variant::CancelRelaxed, "ends::cancel_against_a_beat", UNORDERED),
    (Variant::CancelByStore, "ends::cancel_against_expiry", UNORDERED),
    (Variant::TakeLate, "ends::a_timer_is_armed_after_another_thread_has_cancelled_it", UNORDERED),
    (Variant::TakenRelaxed, "ends::a_timer_is_armed_after_another_thread_has_cancelled_it", UNORDERED),
    (Variant::RevokedRelaxed, "ends::a_timer_is_armed_after_the_owner_has_ended_it", UNORDERED),
    (Variant::FinishRelaxed, "ends::a_timer_is_armed_after_it_has_fired", UNORDERED),
    (Variant::FinishBeatRelaxed, "ends::cancel_against_a_beat", UNORDERED),
    (Variant::PublishRelaxed, "messages::a_mailbox_hands_over", UNORDERED),
    (Variant::RoomRelaxed, "messages::a_place_in_the_ring_is_used_again", UNORDERED),
    (Variant::TakeTwice, "messages::a_late_message_rewinds_no_beat", ENDS),
    (Variant::BeginRelaxed, "waits::a_canceller_is_not_taken_for_the_owner", ELSEWHERE),
    (Variant::LockRelaxed, "messages::a_reset_keeps_the_period", ENDS),
    (Variant::ResetRelaxed, "messages::a_reset_against_a_cancellation_and_an_expiry", EARLY),
    (Variant::ResetByStore, "messages::a_reset_against_a_cancellation_and_an_expiry", ENDS),
    (Variant::SettleByStore, "messages::a_late_reset_does_not_write_to_a_later_arming", EARLY),
    (Variant::EndRelaxed, "waits::a_cancellation_waits_for_the_callback", DEADLOCK),
    (Variant::EndUntold, "waits::a_cancellation_waits_for_the_callback", DEADLOCK),
    (
        Variant::RearmedUnseen,
        "waits::a_cancellation_waits_for_a_callback_that_has_armed_its_timer_again",
        UNORDERED,
    ),
    (Variant::SleepRelaxed, "waits::an_owner_that_sleeps_again_has_another_alarm", UNORDERED),
    (Variant::RouseRelaxed, "waits::an_owner_that_sleeps_again_has_another_alarm", UNORDERED),
    (Variant::RousedRelaxed, "waits::an_owner_that_sleeps_again_has_another_alarm", UNORDERED),
    (Variant::SleepUnfenced, "waits::an_owner_does_not_sleep_through_a_message", SLEPT),
    (Variant::PostUnfenced, "waits::an_owner_does_not_sleep_through_a_message", SLEPT),
    (Variant::CloseUnfenced, "ends::a_service_is_closed_while_a_timer_is_added", ENDS),
    (Variant::GoneUnseen, "ends::a_service_is_closed_while_a_timer_is_added", ENDS),
    (Variant::RingsLetGo, "ends::a_service_is_closed_while_a_timer_is_reset", ENDS),
    (Variant::ResetUnheld, "ends::a_service_is_closed_while_a_timer_that_was_due_is_reset", ENDS),
    (Variant::RevokedUnheld, "ends::a_service_is_closed_while_a_timer_that_was_due_is_revoked", ENDS),
    (Variant::HintRelaxed, "messages::two_threads_give_hints", PILED_UP),
    (Variant::HintByStore, "messages::a_hint_is_not_lost", PILED_UP),
    (Variant::HintUntold, "waits::an_owner_does_not_sleep_through_a_revocation_behind_a_cancellation", SLEPT),
    (Variant::HintMarkLate, "messages::a_hint_is_not_lost", PILED_UP),
];

#[test]
fn every_variant_is_caught_by_its_model() {
    let models = CAUGHT.iter().map(|&(variant, model, sign)| (variant, model, vec![sign]));
    busted::assert_caught("timer::models", models);
}
