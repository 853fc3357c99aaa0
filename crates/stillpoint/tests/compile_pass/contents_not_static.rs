use stillpoint::rcu::Domain;

fn main() {
    let domain = Domain::new();
    let text = String::from("owned");
    let _cell = domain.cell(text);
}
