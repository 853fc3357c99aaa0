use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let mut reclaimer = domain.reclaimer();
    let text = String::from("short");
    #[cfg(not(test))] reclaimer.defer(|| assert_eq!(text, "short"));
    #[cfg(test)] reclaimer.defer(move || assert_eq!(text, "short"));
}
