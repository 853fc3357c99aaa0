use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let text = String::from("short");
    let _cell = domain.cell(text.clone());
    #[cfg(not(test))] let _cell = domain.cell(text.as_str());
}
