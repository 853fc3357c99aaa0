use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let mut reclaimer = domain.reclaimer();
    let text = String::from("short");
    reclaimer.defer(|| assert_eq!(text, "short"));
}
