//! Messages of errors, and handles.

use stillpoint::timer::shared::{ArmError, Outcome};
use stillpoint::timer::Limit;

use crate::with_timer;

#[test]
fn every_reason_says_what_to_do() {
    let reasons = [
        ArmError::Full(()),
        ArmError::Armed(()),
        ArmError::Busy(()),
        ArmError::Gone(()),
        ArmError::Foreign(()),
        ArmError::AtRest(()),
    ];
    let texts: Vec<String> = reasons.iter().map(ArmError::to_string).collect();
    for (at, text) in texts.iter().enumerate() {
        assert!(text.matches(':').count() == 2 && !texts[..at].contains(text), "{text}");
    }
}

#[test]
fn what_cannot_be_printed_is_not_needed_to_print() {
    struct Silent;
    let (mut service, timer) = with_timer();
    service.arm(&timer, 10, Silent).unwrap();
    let refused = service.arm(&timer, 10, Silent).unwrap_err();
    for text in [
        format!("{refused:?}"),
        format!("{service:?}"),
        format!("{timer:?}"),
        format!("{:?}", service.remote()),
        format!("{:?}", service.remote().mailbox(1)),
    ] {
        assert!(!text.is_empty());
    }
    assert!(format!("{timer:?}").contains("armed: true"));
}

#[test]
fn outcomes_give_the_value() {
    let (mut service, timer) = with_timer();
    service.arm(&timer, 10, 7).unwrap();
    let clone = timer.clone();
    assert!(clone.is_same(&timer) && !clone.is_same(&service.remote().timer()));
    assert_eq!(clone.cancel().into_value(), Some(7));
    assert_eq!(timer.cancel().into_value(), None);
    service.arm(&timer, 10, 8).unwrap();
    let _ = service.run(10, Limit::NONE, |_, _| assert_eq!(timer.cancel(), Outcome::Running));
    assert_eq!(clone.cancel(), Outcome::Fired);
}
