use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let mut reclaimer = domain.reclaimer();
    let text = String::from("owned");
    reclaimer.defer(move || assert_eq!(text, "owned"));
}
