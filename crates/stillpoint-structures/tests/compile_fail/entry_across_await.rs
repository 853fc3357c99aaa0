use stillpoint::table::Table;

fn spawn(_: impl Send) {}

async fn wait() {}

fn main() {
    let table: Table<u64, String> = Table::new();
    spawn(async move {
        let entry = table.get(&1);
        #[cfg(not(test))] wait().await;
        entry.is_some()
    });
}
