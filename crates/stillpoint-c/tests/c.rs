//! Tests of the header and the library, by the C and C++ programs in `tests/c`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "programs/fences.rs"]
mod fences;
#[path = "programs/headers.rs"]
mod headers;
#[path = "programs/install.rs"]
mod install;
#[path = "programs/installed.rs"]
mod installed;
mod programs;
#[path = "programs/run.rs"]
mod run;
#[path = "programs/sanitizing.rs"]
mod sanitizing;
use fences::*;
use headers::*;
use installed::*;
use programs::*;
use run::*;
use sanitizing::*;

/// Runs a program of `tests/c` with every installed compiler, by gcc with and without `STILL_CHECKED`, and by the others so that each language
/// and each maker has both. Where a compiler is missing, the others have both.
fn runs(name: &str) {
    let source = root().join("tests/c").join(name).with_extension("c");
    let there: Vec<_> = COMPILERS.into_iter().filter(|compiler| compiler.is_there()).collect();
    for &compiler in &there {
        let is_checked = (compiler.language == "c++") != compiler.name.starts_with("clang");
        for (number, flags) in [&["-O2"][..], &["-O2", "-DSTILL_CHECKED"]].into_iter().enumerate() {
            if there.len() < COMPILERS.len() || compiler.name == "gcc" || is_checked == (number == 1) {
                compiled_and_run(compiler, &source, flags, &format!("{name}-{}-{number}", compiler.name));
            }
        }
    }
}

#[test]
fn errors() {
    runs("errors");
}

#[test]
fn readers() {
    runs("readers");
}

#[test]
fn offline() {
    runs("offline");
}

#[test]
fn writers() {
    runs("writers");
}

#[test]
fn callbacks() {
    runs("callbacks");
}

#[test]
fn thread_ends() {
    runs("thread_ends");
}

#[test]
fn checked() {
    runs("checked");
}

#[test]
fn twice() {
    runs("twice");
}

#[test]
fn htimer() {
    runs("htimer");
}

#[test]
fn bitset() {
    runs("bitset");
}

#[test]
fn fences() {
    runs("fences");
}

#[test]
fn links() {
    runs("links");
    let source = root().join("tests/c/links.c");
    let reasons: [(_, &[&str]); 3] = [
        (1..=7, &["this takes the address of a pointer"]),
        (8..=14, &["pointer type", "cannot convert", "cannot initialize", "no matching function"]),
        (15..=17, &["ignoring return value", "result unused"]),
    ];
    for compiler in COMPILERS.into_iter().filter(|compiler| compiler.is_there()) {
        for (wrong, words) in reasons.iter().flat_map(|(all, words)| all.clone().map(move |it| (it, words))) {
            let mut command = compiler.command();
            command.arg(format!("-DWRONG={wrong}")).args(["-c", "-o", "/dev/null"]).arg(&source);
            let output = command.output().unwrap();
            let said = said(&output);
            assert!(
                !output.status.success() && words.iter().any(|word| said.contains(word)),
                "{}, WRONG={wrong}: {said}",
                compiler.name
            );
        }
    }
}

#[test]
fn workers() {
    runs("workers");
}

#[test]
fn table() {
    runs("table");
}

#[test]
fn protect() {
    runs("protect");
}

#[test]
fn timer() {
    runs("timer");
}

#[test]
fn pool() {
    runs("pool");
}

#[test]
fn locals() {
    println!("{}", compiled_and_run(CC, &root().join("tests/c/locals.c"), &["-O2"], "locals"));
}

#[test]
fn no_call_needs_memory() {
    let source = root().join("tests/c/memory.c");
    for (flags, program) in [(&["-O2"][..], "memory"), (&["-O2", "-DSTILL_CHECKED"], "memory-checked")] {
        println!("{}", compiled_and_run(CC, &source, flags, program));
    }
}

#[test]
fn stress() {
    runs("stress");
}

#[test]
fn litmus() {
    runs("litmus");
}

/// Lines of the header, their replacement, and the program that must fail.
const BROKEN: &[(&str, &str, &str)] = &[
    // Without the second load. The yield makes the critical time longer.
    (
        "        __atomic_store_n(slot, held.object, __ATOMIC_RELEASE);\n        still_fence_(head);\n        /* Acquire: pairs with still_store and still_exchange. */\n        void *now = __atomic_load_n((still_any_ const *)link, __ATOMIC_ACQUIRE);\n",
        "        sched_yield();\n        __atomic_store_n(slot, held.object, __ATOMIC_RELEASE);\n        void *now = held.object;\n",
        "stress",
    ),
    ("        __atomic_store_n(slot, held.object, __ATOMIC_RELEASE);\n", "", "readers"),
    ("        __atomic_store_n(state, token, __ATOMIC_RELEASE);\n        still_fence_(head);\n", "        (void)token;\n", "readers"),
    // Without the fence of a region, which x86 needs as well. `the_fences_are_there` also looks for the fence of protected loads: the litmus
    // finds that fence missing only if a retire and a flush together are faster than the reader's store buffer drains.
    ("        __atomic_store_n(state, token, __ATOMIC_RELEASE);\n        still_fence_(head);\n", "        __atomic_store_n(state, token, __ATOMIC_RELEASE);\n", "litmus"),
    // A reader that was away begins regions and protected loads at once.
    ("    return (int64_t)(state - 1) < -2;\n", "    return (int64_t)state < 0;\n", "litmus"),
    // The same in a handler that has interrupted a return.
    ("    return (int64_t)(state - 1) < -2;\n", "    return (int64_t)state < -1;\n", "offline"),
    // The end of a region reports nothing.
    ("__atomic_store_n(still_state_(head), token | STILL_IDLE_, __ATOMIC_RELEASE);\n", "__atomic_store_n(still_state_(head), ((void)token, (uint64_t)0), __ATOMIC_RELEASE);\n", "offline"),
    // A protected load reports nothing; and one within a region ends it.
    ("        __atomic_store_n(state, vouched, __ATOMIC_RELEASE);\n", "        (void)vouched;\n", "offline"),
    (
        "    if (__builtin_expect(old != vouched, 0) && !still_is_open_(old)) {\n        if (!still_is_here_(old))\n            return still_protect_back_(reader, link);\n",
        "    if (old != vouched) {\n",
        "offline",
    ),
    ("        head->nested++;\n", "", "readers"),
    ("        head->nested--;\n", "", "readers"),
    ("    if (__builtin_expect(__atomic_load_n(still_state_(head), __ATOMIC_RELAXED) != token, 0)) {\n", "    if (0) {\n", "readers"),
    ("        __atomic_store_n((void **)held.slot_, NULL, __ATOMIC_RELEASE);\n", "", "readers"),
];

/// Each broken header makes its program fail in one of several runs. This shows that the programs can fail.
#[test]
fn broken_headers_are_found_out() {
    let compiler = COMPILERS[0];
    if !compiler.is_there() {
        return;
    }
    for (number, &(from, to, program)) in BROKEN.iter().enumerate() {
        let source = root().join("tests/c").join(program).with_extension("c");
        let built = with_broken_header(compiler, ("stillpoint.h", from, to), &source, number);
        let is_found_out = (0..40).any(|_| !within(&built, 60));
        assert!(is_found_out, "stillpoint.h with `{to}` in place of `{from}` passes");
    }
}

/// In symmetric mode, a region, a nested one (which a signal handler may begin) and a protected load begin with a fence. Each of these
/// fences is missed in headers without it: the compiler may share the code of the two in `still_pin`, so each of them is also tried alone.
#[test]
fn the_fences_are_there() {
    const FENCE: &str = "        still_fence_(head);\n";
    const PLACES: [(&str, &str); 3] = [
        ("pin", "        __atomic_store_n(state, token, __ATOMIC_RELEASE);\n"),
        (
            "pin",
            "        /* This may be a signal handler that has interrupted a still_pin before its fence. */\n",
        ),
        ("protect", "        __atomic_store_n(slot, held.object, __ATOMIC_RELEASE);\n"),
    ];
    let source = place().join("fences.c");
    let text = "#include <stillpoint.h>\nstruct thing;\n\
                void pin(struct still_reader *r);\n\
                void pin(struct still_reader *r) { still_pin(r); }\n\
                struct still_protected protect(struct still_reader *r, struct thing **link);\n\
                struct still_protected protect(struct still_reader *r, struct thing **link) { return still_protect(r, link); }\n";
    std::fs::write(&source, text).unwrap();
    // Every choice of the three fences.
    for kept in 0..8 {
        let header = root().join("include/stillpoint.h");
        let include = place().join(format!("fences-{kept}"));
        std::fs::create_dir_all(&include).unwrap();
        let mut text = std::fs::read_to_string(header).unwrap();
        let mut with_fence = Vec::new();
        for (number, (function, before)) in PLACES.into_iter().enumerate() {
            let fenced = format!("{before}{FENCE}");
            assert_eq!(text.matches(&fenced).count(), 1, "{fenced}");
            match kept >> number & 1 {
                0 => text = text.replace(&fenced, before),
                _ => with_fence.push(function),
            }
        }
        std::fs::write(include.join("stillpoint.h"), text).unwrap();
        for code in machine_code(&source, &include) {
            for function in ["pin", "protect"] {
                assert_eq!(
                    has_fence(&code, function),
                    with_fence.contains(&function),
                    "{kept}, {function}: {code}"
                );
            }
        }
    }
}

#[test]
fn the_header_opens_with_a_program() {
    opens_with_a_program("stillpoint.h", "c", 3);
}

#[test]
fn the_examples_run() {
    for name in ["configuration", "flows", "packets", "events", "sleeper"] {
        let source = root().join("examples").join(name).with_extension("c");
        println!("{}", compiled_and_run(CC, &source, &["-O2"], name));
    }
}

/// A capture with these packets, in either byte order.
fn capture(is_little: bool, magic: u32, packets: &[Vec<u8>]) -> Vec<u8> {
    let number = |number: u32| if is_little { number.to_le_bytes() } else { number.to_be_bytes() };
    let mut bytes: Vec<u8> = [magic, 0x0004_0002, 0, 0, 65535, 1].into_iter().flat_map(number).collect();
    for (at, packet) in packets.iter().enumerate() {
        let length = packet.len() as u32;
        bytes.extend([at as u32, 500, length, length].into_iter().flat_map(number));
        bytes.extend(packet);
    }
    bytes
}

/// A packet of UDP, with a VLAN or without, over the fourth or the sixth version of IP.
fn packet(has_vlan: bool, is_ipv6: bool, port: u8) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend(if has_vlan { &[0x81, 0, 0, 7][..] } else { &[] });
    if is_ipv6 {
        // A header of options lies in between.
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 0, 64]);
        bytes.extend([[1; 16], [2; 16]].concat());
        bytes.extend([17, 0, 0, 0, 0, 0, 0, 0]);
    } else {
        bytes.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    }
    bytes.extend([0, port, 0, 53, 0, 8, 0, 0]);
    bytes
}

/// `flows` reads captures of each kind, also such as are cut off anywhere, and says what it cannot read. It never crashes.
#[test]
fn flows_reads_captures() {
    let source = root().join("examples/flows.c");
    let checked = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let program = compiled(CC, &source, &checked, "flows-asan");
    let file = place().join("flows.pcap");
    let run = |bytes: &[u8], times: &str| {
        std::fs::write(&file, bytes).unwrap();
        let mut timeout = Command::new("timeout");
        let output =
            timeout.args(["--signal=ABRT", "60"]).arg(&program).arg(&file).arg(times).output().unwrap();
        (output.status.code(), said(&output))
    };
    let kinds = [(false, false), (false, true), (true, false), (true, true)];
    let packets: Vec<_> =
        kinds.into_iter().flat_map(|(vlan, ipv6)| [1, 2].map(|port| packet(vlan, ipv6, port))).collect();
    for (is_little, magic) in
        [(true, 0xa1b2_c3d4), (false, 0xa1b2_c3d4), (true, 0xa1b2_3c4d), (false, 0xa1b2_3c4d)]
    {
        let whole = capture(is_little, magic, &packets);
        let (code, text) = run(&whole, "3");
        // Four flows: the VLAN does not count. At the end of each turn, all but the last one have been silent for a second.
        let is_read = text.contains("8 packets of IP, 0 others") && text.contains("24 packets, 10 flows");
        assert!(code == Some(0) && is_read, "{is_little} {magic:x}: {code:?} {text}");
    }

    let whole = capture(true, 0xa1b2_c3d4, &packets);
    for length in (0..whole.len()).step_by(3) {
        let (code, text) = run(&whole[..length], "1");
        let is_told = length >= 24 || text.contains("shorter than the header");
        assert!(matches!(code, Some(0 | 2)) && is_told, "{length}: {code:?} {text}");
    }
    // Each packet is cut off, at each of its bytes.
    for length in 0..packets[6].len() {
        let cut: Vec<_> = packets.iter().map(|packet| packet[..length.min(packet.len())].to_vec()).collect();
        let (code, text) = run(&capture(false, 0xa1b2_c3d4, &cut), "1");
        assert!(matches!(code, Some(0 | 2)), "{length}: {code:?} {text}");
    }
    let mut long = whole.clone();
    long[24 + 8..24 + 12].fill(0xff);
    let mut other = whole.clone();
    other[20] = 113;
    for (bytes, words) in [
        (&b"this is a text, and not so short"[..], "no pcap file"),
        (&[&[0x0a, 0x0d, 0x0d, 0x0a][..], &[0; 40]].concat(), "pcapng"),
        (&capture(true, 0xa1b2_c3d4, &[vec![0; 60]]), "no packets of IP in it, and 1 others"),
        (&long, "damaged"),
        (&other, "link type is 113"),
    ] {
        let (code, text) = run(bytes, "1");
        assert!(code == Some(2) && text.contains(words), "{words}: {code:?} {text}");
    }
    let (code, text) = run(&whole, "many");
    assert!(code == Some(2) && text.contains("not a number of times"), "{text}");
}

/// The header compiles by itself, in each standard, without warnings.
#[test]
fn the_header_compiles_by_itself() {
    for compiler in COMPILERS.into_iter().filter(|compiler| compiler.is_there()) {
        let standards: &[&str] = match compiler.language {
            "c" => &["-std=c11", "-std=c17"],
            _ => &["-std=c++17", "-std=c++20"],
        };
        for standard in standards {
            for checked in ["-USTILL_CHECKED", "-DSTILL_CHECKED"] {
                let source =
                    place().join(format!("header.{}", if compiler.language == "c" { "c" } else { "cc" }));
                std::fs::write(&source, "#include \"stillpoint.h\"\n#include \"stillpoint.h\"\n").unwrap();
                let output = compiler
                    .command()
                    .args([standard, checked, "-fsyntax-only"])
                    .arg(&source)
                    .output()
                    .unwrap();
                assert!(output.status.success(), "{} {standard}:\n{}", compiler.name, said(&output));
            }
        }
    }
}

/// The declarations that cbindgen makes from the Rust side.
fn generated() -> String {
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        style: cbindgen::Style::Tag,
        documentation: false,
        no_includes: true,
        ..cbindgen::Config::default()
    };
    let bindings = cbindgen::Builder::new().with_crate(root()).with_config(config).generate().unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    // C code accesses atomics as plain types, by builtins.
    let plain =
        [("AtomicPtr<uint8_t>", "void *"), ("AtomicPtr<uint64_t>", "uint64_t *"), ("AtomicU32", "uint32_t")];
    let text = String::from_utf8(text).unwrap();
    plain.into_iter().fold(text, |text, (atomic, plain)| text.replace(atomic, plain))
}

/// The items of a C text without preprocessor lines. An item ends with a `;` outside braces.
fn items(text: &str) -> Vec<String> {
    let (mut items, mut item, mut depth) = (Vec::new(), String::new(), 0);
    for character in
        text.lines().filter(|line| !line.starts_with('#')).flat_map(|line| line.chars().chain(['\n']))
    {
        item.push(character);
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' if depth == 0 => items.push(std::mem::take(&mut item).trim().to_owned()),
            _ => {}
        }
    }
    items
}

/// C code that does not compile together with a header that contradicts a generated item.
fn comparison(item: &str) -> String {
    let pointers = [
        "still_destroy_fn",
        "still_stall_fn",
        "still_callback_fn",
        "still_hash_fn",
        "still_entry_fn",
        "still_report_fn",
        "still_htimer_fn",
        "still_htimer_result_fn",
    ];
    if let Some(rest) =
        item.strip_prefix("struct ").filter(|rest| rest.split('(').next().unwrap().contains('{'))
    {
        let (name, body) = rest.split_once(" {").unwrap();
        if body.contains("_private") {
            return String::new();
        }
        let mut body = body.to_owned();
        pointers.iter().for_each(|pointer| body = body.replace(pointer, &format!("{pointer} *")));
        let fields =
            body.split(';').filter_map(|field| field.split_whitespace().last()).filter(|field| *field != "}");
        let same = |field: &str| {
            let field = field.trim_start_matches('*').split('[').next().unwrap();
            let place = |of: &str| format!("offsetof(struct {of}, {field})");
            let size = |of: &str| format!("sizeof(((struct {of} *)0)->{field})");
            let (ours, theirs) = (format!("rust_{name}"), name);
            format!(
                "_Static_assert({} == {} && {} == {}, \"{name}.{field}\");\n",
                place(&ours),
                place(theirs),
                size(&ours),
                size(theirs)
            )
        };
        let asserted: String = fields.map(same).collect();
        return format!(
            "struct rust_{name} {{{body}\n_Static_assert(sizeof(struct rust_{name}) == sizeof(struct {name}), \"{name}\");\n{asserted}"
        );
    }
    if let Some(pointer) = pointers.iter().find(|pointer| item.contains(&format!("(*{pointer})"))) {
        let renamed = item.replace(pointer, &format!("rust_{pointer}"));
        return format!(
            "{renamed}\n_Static_assert(__builtin_types_compatible_p(rust_{pointer}, {pointer} *), \"{pointer}\");\n"
        );
    }
    // A second declaration of a function must have compatible types.
    let mut item = item.to_owned();
    pointers.iter().for_each(|pointer| item = item.replace(&format!("{pointer} "), &format!("{pointer} *")));
    format!("{item}\n")
}

/// The headers that together declare everything that the Rust side has.
const COMPARED: [&str; 6] = [
    "stillpoint.h",
    "stillpoint/htimer.h",
    "stillpoint/urcu.h",
    "stillpoint/reclamation.h",
    "stillpoint/dpdk/rte_rcu_qsbr.h",
    "stillpoint/dpdk/rte_timer.h",
];

/// Compiles a file with the headers and the declarations from cbindgen. If they differ, the file does not compile.
#[test]
fn the_header_declares_what_the_library_has() {
    // A function that a header declares with a label is compared under its name in the header.
    let labels = headers().into_iter().flat_map(|header| labels(&header));
    let generated = labels.fold(generated(), |text, label| {
        text.replace(&format!("{label}("), &format!("{}(", label.trim_start_matches("still_")))
    });
    let constants = generated.lines().filter_map(|line| line.strip_prefix("#define "));
    let constants = constants
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| format!("_Static_assert({name} == {value}, \"{name}\");\n"));
    let items = items(&generated);
    let text: String = COMPARED
        .into_iter()
        .map(|header| format!("#include \"{header}\"\n"))
        .chain(constants)
        .chain(items.iter().map(|item| comparison(item)))
        .collect();
    for sure in [
        "offsetof(struct still_stats, pinned)",
        "offsetof(struct still_stats, silent)",
        "int still_retire(",
        "STILL_HAZARD_ ==",
        "rust_still_stall_fn",
        "void still_urcu_call_(",
        "*rte_rcu_qsbr_dq_create(",
        "int still_rte_timer_reset_(",
        "offsetof(struct still_rcu_thread_, nested)",
        "void still_hazard_retire_(",
    ] {
        assert!(text.contains(sure), "{sure} is not compared:\n{text}");
    }
    for compiler in COMPILERS.into_iter().filter(|compiler| compiler.language == "c" && compiler.is_there()) {
        let source = place().join("both.c");
        std::fs::write(&source, &text).unwrap();
        let output = compiler.command().arg("-fsyntax-only").arg(&source).output().unwrap();
        assert!(output.status.success(), "{}:\n{}\n{text}", compiler.name, said(&output));
    }
}

/// The names of `text` that are followed by a parenthesis.
fn called(text: &str) -> BTreeSet<String> {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let ends = text.match_indices('(').map(|(end, _)| &text[..end]);
    let names =
        ends.map(|before| &before[before.rfind(|character| !is_word(character)).map_or(0, |at| at + 1)..]);
    names.filter(|name| name.starts_with("still_")).map(str::to_owned).collect()
}

/// All C headers. The C++ headers declare no functions of the library.
fn headers() -> Vec<PathBuf> {
    fn below(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect()
    }
    let all = below(&root().join("include")).into_iter();
    all.filter(|path| path.extension().is_some_and(|extension| extension == "h")).collect()
}

/// The names that a header gives to functions in the library by labels.
fn labels(header: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(header).unwrap();
    let labels = text.split("__asm__(\"still_").skip(1);
    labels.map(|rest| format!("still_{}", rest.split('"').next().unwrap())).collect()
}

/// The functions that a header declares and does not define.
fn declared(header: &Path) -> BTreeSet<String> {
    let header = std::fs::read_to_string(header).unwrap();
    let mut code = header.as_str();
    let mut text = String::new();
    while let Some((before, rest)) = code.split_once("/*") {
        text.push_str(before);
        code = rest.split_once("*/").unwrap().1;
    }
    text.push_str(code);
    // Functions that the program itself defines.
    let text = text.split(';').filter(|item| !item.contains("__weak__")).collect::<Vec<_>>().join(";");
    let inline: BTreeSet<_> = text
        .split("static inline ")
        .skip(1)
        .flat_map(|rest| called(&rest[..=rest.find('(').unwrap()]))
        .collect();
    let types: BTreeSet<_> =
        text.split("typedef ").skip(1).flat_map(|rest| called(&rest[..rest.find(';').unwrap()])).collect();
    called(&text).difference(&inline).filter(|name| !types.contains(*name)).cloned().collect()
}

/// The prefixes of functions of drop-ins whose declarations are made by macros.
const DROP_INS: [&str; 1] = ["still_urcu_"];

/// The thread-local variables that a header declares.
fn variables(header: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(header).unwrap();
    let declarations = text.split("extern __thread ").skip(1);
    let names = declarations.filter_map(|rest| {
        rest.split_once(" __attribute__").map_or(rest, |(name, _)| name).split_whitespace().last()
    });
    let names = names.map(|name| name.trim_start_matches('*'));
    names.filter(|name| name.starts_with("still_")).map(str::to_owned).collect()
}

/// The shared library exports what the headers declare and do not define, each with its version, and nothing else.
#[test]
fn the_shared_library_exports_the_header() {
    let of = |header: &PathBuf| [declared(header), labels(header), variables(header)];
    let declared: BTreeSet<_> = headers().iter().flat_map(of).flatten().collect();
    assert!(declared.contains("still_thread_") && declared.contains("still_hazard_make_"));
    let output =
        Command::new("nm").args(["-D", "--defined-only"]).arg(prefix().join("lib/libstillpoint.so")).output();
    let Ok(output) = output else { return skipped("nm is not installed") };
    assert!(output.status.success(), "{}", said(&output));
    let names = String::from_utf8(output.stdout).unwrap();
    let names: Vec<_> = names.lines().map(|line| line.split_whitespace().last().unwrap()).collect();
    let version = "@@STILLPOINT_0.1";
    let functions: BTreeSet<_> =
        names.iter().filter_map(|name| name.strip_suffix(version)).map(str::to_owned).collect();
    // The one additional symbol is the version itself.
    assert_eq!(names.len(), functions.len() + 1, "{names:?}");
    // The functions of these drop-ins are compared in other tests.
    let is_compared = |name: &String| !DROP_INS.iter().any(|prefix| name.starts_with(prefix));
    let compared = |names: BTreeSet<String>| names.into_iter().filter(is_compared).collect::<BTreeSet<_>>();
    assert_eq!(compared(functions), compared(declared));
}

/// The programs use only valid memory, and leak none.
#[test]
fn valgrind_finds_nothing() {
    for name in ["callbacks", "readers", "table", "protect", "thread_ends"] {
        let source = root().join("tests/c").join(name).with_extension("c");
        let program = compiled(CC, &source, &["-O1", "-g", "-DGROWTHS=1"], &format!("{name}-valgrind"));
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        let Ok(output) = valgrind.arg(&program).output() else {
            return skipped("valgrind is not installed");
        };
        assert!(output.status.success(), "{name}: {}\n{}", output.status, said(&output));
    }
}

/// AddressSanitizer finds no object that a lookup holds and that was freed.
#[test]
fn address_sanitizer_finds_nothing() {
    if !CC.is_there() {
        return;
    }
    let flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    for name in ["protect", "table", "htimer"] {
        let source = root().join("tests/c").join(name).with_extension("c");
        compiled_and_run(CC, &source, &flags, &format!("{name}-asan"));
    }
}

/// The library is not compiled for ThreadSanitizer, but tells it which accesses are ordered. So ThreadSanitizer reports wrong programs, and
/// no correct ones.
#[test]
fn thread_sanitizer_tells_right_from_wrong() {
    for compiler in sanitizing() {
        let flags = ["-O1", "-g", "-fsanitize=thread"];
        for name in ["stress", "table", "protect", "pool", "thread_ends", "htimer"] {
            let source = root().join("tests/c").join(name).with_extension("c");
            compiled_and_run(compiler, &source, &flags, &format!("{name}-{}-tsan", compiler.name));
        }
        let source = root().join("tests/c/tsan.c");
        let program = compiled(compiler, &source, &flags, &format!("tsan-{}", compiler.name));
        for arguments in [&["0"][..], &["0", "symmetric"]] {
            let output = Command::new(&program).args(arguments).output().unwrap();
            assert!(output.status.success(), "{} {arguments:?}:\n{}", compiler.name, said(&output));
        }
        for defect in 1..=7 {
            let output = Command::new(&program).arg(defect.to_string()).output().unwrap();
            assert!(
                !output.status.success() && said(&output).contains("data race"),
                "{}, defect {defect}, is not found: {}\n{}",
                compiler.name,
                output.status,
                said(&output)
            );
        }
    }
}

/// The headers compile for another processor, even if no libc for it is installed.
#[test]
fn the_headers_compile_for_aarch64() {
    let text: &[(&str, &str)] = &[
        ("sys/types.h", "#include <stddef.h>\ntypedef long ssize_t;\n"),
        (
            "stdio.h",
            "typedef struct file FILE;\nextern FILE *stderr;\nint fprintf(FILE *, const char *, ...);\n",
        ),
        ("stdlib.h", "_Noreturn void abort(void);\n"),
    ];
    let libc = place().join("libc");
    for (name, text) in text {
        std::fs::create_dir_all(libc.join(name).parent().unwrap()).unwrap();
        std::fs::write(libc.join(name), text).unwrap();
    }
    let source = place().join("aarch64.c");
    std::fs::write(&source, "#include \"stillpoint.h\"\nint main(void) { return 0; }\n").unwrap();
    let freestanding = ["-ffreestanding", "-isystem", libc.to_str().unwrap(), "-D__linux__"];
    let gcc = Compiler { name: "aarch64-linux-gnu-gcc", language: "c", standard: "-std=c11" };
    let clang = Compiler { name: "clang", language: "c", standard: "-std=c11" };
    for (compiler, flags) in [(gcc, &[][..]), (clang, &["--target=aarch64-linux-gnu"])] {
        if !compiler.is_there() {
            continue;
        }
        for checked in ["-USTILL_CHECKED", "-DSTILL_CHECKED"] {
            let mut command = compiler.command();
            command
                .args(flags)
                .args(freestanding)
                .args([checked, "-O2", "-c", "-o", "/dev/null"])
                .arg(&source);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{} {checked}:\n{}", compiler.name, said(&output));
        }
    }
}

/// Threads that have used the library may end after it was closed.
#[test]
fn a_program_that_closes_the_library_goes_on() {
    let program = place().join("closes");
    let output = Command::new("cc")
        .args(["-D_GNU_SOURCE", "-pthread"])
        .arg(root().join("tests/c/closes.c"))
        .arg("-I")
        .arg(prefix().join("include"))
        .arg("-ldl")
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let output = with_library(&program).output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, said(&output));

    // A plugin with the static library, linked as the guide says, and linked wrongly. In the second case, the code that runs at a thread's
    // end is unmapped before it runs.
    for (stays, name) in [(true, "stays.so"), (false, "goes.so")] {
        let plugin = place().join(name);
        let mut link = Command::new("cc");
        link.args([
            "-shared",
            "-Wl,-z,defs",
            "-Wl,-u,still_domain_default,-u,still_barrier,-u,still_error,-u,still_reader_new_",
        ]);
        link.args(stays.then_some("-Wl,-z,nodelete"));
        link.arg(prefix().join("lib/libstillpoint.a")).args(LIBRARIES).arg("-o").arg(&plugin);
        let output = link.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let output = Command::new(&program).arg(&plugin).output().unwrap();
        assert_eq!(output.status.success(), stays, "{name}: {}: {}", output.status, said(&output));
    }
}
