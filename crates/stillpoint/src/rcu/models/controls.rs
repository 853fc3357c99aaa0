//! Every broken variant that a model can catch is caught by one: a model that cannot fail proves nothing.

#![cfg(stillpoint_busted)]

use super::boost::RAISED;
use super::UNORDERED;
use crate::busted::{self, Variant};

/// The model that catches each variant.
const CAUGHT: &[(Variant, &str)] = &[
    (Variant::EnterRelaxed, "regions::a_section_follows_another"),
    (Variant::LeaveRelaxed, "regions::pin_against_retire"),
    (Variant::PinTokenRelaxed, "regions::pin_against_retire"),
    (Variant::NestedNoFence, "regions::a_handler_interrupts_an_entry"),
    (Variant::PinNoLight, "regions::pin_against_retire"),
    (Variant::NestedLeave, "regions::guards_overlap"),
    (Variant::FoundRelaxed, "regions::an_exchange_that_fails_lends_what_it_found"),
    (Variant::HazardSetRelaxed, "objects::a_slot_is_set_again"),
    (Variant::HazardClearRelaxed, "objects::protect_against_retire"),
    (Variant::BlocksRelaxed, "objects::blocks_of_slots_are_given_back"),
    (Variant::ProtectNoReload, "objects::protect_against_retire"),
    (Variant::ProtectNoLight, "objects::protect_against_retire"),
    (Variant::ProtectReloadRelaxed, "objects::protect_against_retire"),
    (Variant::OwnedLight, "objects::an_owned_load_against_retire"),
    (Variant::UnlentRelaxed, "objects::a_lent_slot_comes_back_from_another_thread"),
    (Variant::LentTwice, "objects::a_lent_slot_against_retire"),
    (Variant::SlotUncounted, "objects::a_slot_of_nobody_against_retire"),
    (Variant::LinkTagInSlot, "links::what_a_link_with_a_tag_points_to_is_protected"),
    (Variant::LinkTagIgnored, "links::a_walk_hand_over_hand_ends_at_a_mark"),
    (Variant::QsbrLoadRelaxed, "regions::qsbr_against_retire"),
    (Variant::QsbrStoreRelaxed, "regions::qsbr_against_retire"),
    (Variant::PassiveKept, "regions::qsbr_reports_the_same_token"),
    (Variant::OnlineNoFence, "regions::qsbr_goes_offline_and_online"),
    (Variant::OfflineRelaxed, "regions::qsbr_goes_offline_and_online"),
    (Variant::OfflineRelaxed, "vouching::what_is_protected_stays_so_when_the_reader_is_away"),
    (Variant::VouchTokenRelaxed, "vouching::a_protected_load_vouches"),
    (Variant::VouchRelaxed, "vouching::what_is_protected_stays_so_when_the_reader_vouches"),
    (Variant::VouchInRegion, "vouching::a_region_goes_on"),
    (Variant::BackAtOnce, "vouching::a_reader_comes_back_to_protect"),
    (Variant::BackAtOnce, "vouching::a_reader_comes_back_to_pin"),
    (Variant::TokenBeforeFence, "vouching::a_handler_interrupts_a_return"),
    (Variant::HandlerNotBack, "vouching::a_handler_interrupts_a_return"),
    (Variant::OfflineInRegion, "vouching::a_region_goes_on"),
    (Variant::SilentOwn, "vouching::the_callers_own_reader_holds_what_it_holds"),
    (Variant::FencedWhenBlocked, "vouching::a_fence_is_owed_when_an_older_region_ends"),
    (Variant::KindRelaxed, "registration::a_record_goes_from_guards_to_qsbr"),
    (Variant::SlotOfThread, "objects::a_slot_of_nobody_changes_hands"),
    (Variant::CompletedPastVouched, "tokens::a_check_serves_no_token_for_which_a_reader_does_not_vouch"),
    (Variant::RegisterNoFence, "registration::a_reader_registers_while_the_fence_is_left_out"),
    (Variant::UnregisterRelaxed, "registration::a_record_changes_hands"),
    (Variant::LeaveForgotten, "registration::a_record_goes_from_qsbr_to_guards"),
    (Variant::ClaimRelaxed, "registration::a_slot_has_one_holder_after_the_other"),
    (Variant::SlotsUnseen, "registration::the_first_slots_are_made"),
    (Variant::ClaimedRelaxed, "registration::the_first_slots_are_made"),
    (Variant::GroupRelaxed, "registration::a_group_is_skipped"),
    (Variant::GroupCleared, "registration::a_group_is_skipped"),
    (Variant::CountRelaxed, "handover::a_dropped_reclaimer_passes_on"),
    (Variant::StartRelaxed, "regions::pin_against_retire"),
    (Variant::OrderedRelaxed, "tokens::a_fence_does_not_serve_a_token_started_meanwhile"),
    (Variant::FencedRelaxed, "tokens::two_writers_share_what_they_found_out"),
    (Variant::WriterNoFence, "regions::qsbr_against_retire"),
    (Variant::StopAfterCheck, "handover::background_hand_over"),
    (Variant::LastHandleRelaxed, "handover::the_last_handle_goes"),
    (Variant::TokenByStore, "tokens::a_newer_token_includes_the_older_ones"),
    (Variant::TokenTooEarly, "regions::pin_against_retire"),
    (Variant::NoHeavy, "regions::pin_against_retire"),
    (Variant::FenceFromBefore, "tokens::a_fence_serves_older_tokens_alone"),
    (Variant::SkipWhenQuiet, "regions::pin_against_retire"),
    (Variant::CounterAfterFence, "tokens::a_fence_does_not_serve_a_token_started_meanwhile"),
    (Variant::ScanRelaxed, "regions::pin_against_retire"),
    (Variant::HazardScanRelaxed, "objects::protect_against_retire"),
    (Variant::CompletedRelaxed, "tokens::two_writers_share_what_they_found_out"),
    (Variant::CursorForAll, "tokens::the_scan_goes_full_circle"),
    (Variant::IgnoreRegions, "regions::pin_against_retire"),
    (Variant::IgnoreHazards, "objects::protect_against_retire"),
    (Variant::HazardsFirst, "objects::a_guard_is_exchanged_for_a_slot"),
    (Variant::HazardsFirst, "objects::a_scan_serves_no_token_that_was_over_later"),
    (Variant::HandoverRelaxed, "handover::a_stack_hands_over"),
    (Variant::LeftEarly, "handover::a_barrier_waits_for_what_a_wait_could_not_free"),
    (Variant::TakeUnseen, "handover::what_is_adopted_next_is_seen"),
    (Variant::PushRelaxed, "callbacks::a_lane_hands_over"),
    (Variant::LinkRelaxed, "callbacks::a_lane_hands_over"),
    (Variant::StampedEarly, "callbacks::a_callback_waits_for_readers"),
    (Variant::MergedEarly, "callbacks::merged_segments_wait_for_the_later_token"),
    (Variant::PassedUnstamped, "callbacks::a_queue_is_passed_on_while_one_pushes_and_one_serves"),
    (Variant::GapIgnored, "callbacks::a_queue_is_passed_on_while_one_pushes_and_one_serves"),
    (Variant::ServedRelaxed, "callbacks::a_pause_comes_after_the_turn"),
    (Variant::PushUntold, "callbacks::a_sleeping_server_is_woken"),
    (Variant::RoomByLoad, "limits::room_is_reserved_once"),
    (Variant::RoomRelaxed, "limits::room_is_reserved_once"),
    (Variant::RoomBeforeFree, "limits::an_object_has_its_room_until_it_is_freed"),
    (Variant::TakenRelaxed, "limits::an_empty_account_comes_after_the_destructors"),
    (Variant::SubmitUnfenced, "limits::a_handle_submits_while_the_reclaimer_is_dropped"),
    (Variant::GoneUnseen, "handover::a_table_goes_while_its_shelf_is_served"),
    (Variant::ClosedUnseen, "limits::a_handle_assists_while_the_reclaimer_is_dropped"),
    (Variant::ExitNoLight, "futures::a_guard_wakes_a_future"),
    (Variant::AnswerUnseen, "futures::a_waker_is_found_or_its_owner_sees_why_it_need_not_be"),
    (Variant::WakersRelaxed, "futures::a_reader_that_finds_the_queue_locked_leaves_word"),
    (Variant::RequestNoHeavy, "futures::a_guard_wakes_a_future"),
    (Variant::RequestNotPassedOn, "futures::futures_share_a_request"),
    (Variant::WakerAfterCheck, "futures::a_guard_wakes_a_future"),
    (Variant::AdoptByStore, "futures::a_request_stays_when_the_record_changes_hands"),
    (Variant::WordLost, "futures::a_reader_that_finds_the_queue_locked_leaves_word"),
    (Variant::ShareOwedLost, "futures::a_waker_polls_its_future_in_place"),
    (Variant::ShareNotPassedOn, "futures::a_woken_future_that_is_dropped_passes_on_its_share"),
    (Variant::ReportByStore, "stalls::a_section_is_told_of_once"),
    (Variant::ListRelaxed, "directory::an_entry_serves_one_domain_after_the_other"),
    (Variant::LookedRelaxed, "directory::a_domain_ends_while_two_look_for_it"),
    (Variant::EndRelaxed, "directory::who_finds_no_domain_comes_after_its_end"),
    (Variant::EndedUnseen, "directory::a_domain_ends_while_two_look_for_it"),
    (Variant::DropFrees, "handover::a_dropped_reclaimer_passes_on"),
    (Variant::BoostNoSecondRestore, "boost::a_section_ends"),
    (Variant::BoostNoHeavy, "boost::a_section_ends"),
    (Variant::BoostCloseHasty, "boost::a_thread_closes"),
    (Variant::BoostWordRelaxed, "boost::sections_follow_each_other"),
];

/// As CONTRIBUTING.md says, a failure names the line and the thread of both accesses.
#[test]
fn a_failure_names_both_accesses() {
    let mut model = std::process::Command::new(std::env::current_exe().expect("it runs"));
    model.args(["--exact", "rcu::models::regions::pin_against_retire"]);
    let output = model.env("STILLPOINT_BUSTED", "rcu:leave-relaxed").env("LOOM_LOCATION", "1").output();
    let said = String::from_utf8_lossy(&output.expect("it is started").stdout).into_owned();
    let names = |access: &str, file: &str| {
        said.lines().any(|line| line.trim_start().starts_with(access) && line.contains(file))
    };
    let is_clear =
        names("read: thread #1 @ ", "models/regions.rs:") && names("write: thread #0 @ ", "models/mod.rs:");
    assert!(is_clear, "{said}");
}

/// The message of the model when it catches the variant.
fn sign(variant: Variant, model: &str) -> &'static str {
    match model.split("::").next() {
        _ if matches!(variant, Variant::StopAfterCheck | Variant::PushUntold) => "deadlock",
        _ if matches!(variant, Variant::SlotsUnseen | Variant::ClaimedRelaxed) => {
            "a claimed slot was made before"
        }
        Some("boost") => RAISED,
        Some("futures") => "deadlock",
        Some("stalls") => "a section was not reported exactly once",
        _ => UNORDERED,
    }
}

#[test]
fn every_variant_is_caught_by_its_model() {
    let signs = |variant, model| vec![sign(variant, model), UNORDERED];
    let models = CAUGHT.iter().map(|&(variant, model)| (variant, model, signs(variant, model)));
    busted::assert_caught("rcu::models", models);
}
