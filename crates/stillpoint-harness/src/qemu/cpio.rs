//! Archives in the format `newc` of cpio, which the kernel unpacks as its first file system.
//!
//! The format, from Linux's `Documentation/driver-api/early-userspace/buffer-format.rst`: each entry is a header of 110
//! characters, its name with a zero at the end, and its contents, each padded to a multiple of four bytes.

/// The kind of a file, in the upper bits of its mode.
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
/// The name of the last entry.
const TRAILER: &str = "TRAILER!!!";

/// An archive that is being written.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

/// The fields of a header beside the name.
#[derive(Debug, Default, Clone, Copy)]
struct Header {
    mode: u32,
    size: u32,
    device: (u32, u32),
}

impl Archive {
    /// An archive with folders to mount on, and with the console, which the kernel opens for the first process before that
    /// process can mount anything.
    pub fn to_start_from() -> Self {
        let mut archive = Self::default();
        for folder in ["dev", "proc", "sys"] {
            archive.folder(folder);
        }
        archive.device("dev/console", 5, 1);
        archive
    }

    /// Adds an empty folder; those above it come first.
    pub fn folder(&mut self, name: &str) {
        self.entry(name, Header { mode: FOLDER | 0o755, ..Header::default() });
    }

    /// Adds a file, which anyone may run if it is `executable`. `None` if it is too large for the format, which holds files
    /// below 4 GiB.
    pub fn file(&mut self, name: &str, executable: bool, contents: &[u8]) -> Option<()> {
        let mode = FILE | if executable { 0o755 } else { 0o644 };
        let size = u32::try_from(contents.len()).ok()?;
        self.entry(name, Header { mode, size, ..Header::default() });
        self.bytes.extend_from_slice(contents);
        self.pad();
        Some(())
    }

    /// Adds the node of a character device.
    fn device(&mut self, name: &str, major: u32, minor: u32) {
        let mode = CHARACTER_DEVICE | 0o600;
        self.entry(name, Header { mode, device: (major, minor), ..Header::default() });
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, Header::default());
        self.bytes
    }

    fn entry(&mut self, name: &str, header: Header) {
        self.entries += 1;
        let (links, name_size) = (1, name.len() as u32 + 1);
        let (major, minor) = header.device;
        // inode, mode, user, group, links, time, size, device of the file (two), device that it is (two), size of the
        // name, checksum, which this variant of the format does not have.
        let fields =
            [self.entries, header.mode, 0, 0, links, 0, header.size, 0, 0, major, minor, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry as a reader of the format finds it.
    #[derive(Debug, PartialEq)]
    struct Found {
        name: String,
        mode: u32,
        device: (u32, u32),
        contents: Vec<u8>,
    }

    /// Reads an archive by the description of the format, independently of the writer.
    fn read(archive: &[u8]) -> Vec<Found> {
        let (mut at, mut found) = (0, Vec::new());
        loop {
            let header = std::str::from_utf8(&archive[at..at + 110]).unwrap();
            assert_eq!(&header[..6], "070701");
            let field = |n: usize| u32::from_str_radix(&header[6 + n * 8..14 + n * 8], 16).unwrap();
            let (size, name_size) = (field(6) as usize, field(11) as usize);
            let name = &archive[at + 110..at + 110 + name_size];
            assert_eq!(name.last(), Some(&0), "the name ends with a zero");
            let contents = (at + 110 + name_size).next_multiple_of(4);
            at = (contents + size).next_multiple_of(4);
            let name = String::from_utf8(name[..name_size - 1].to_vec()).unwrap();
            if name == TRAILER {
                assert_eq!(at, archive.len(), "nothing follows the trailer");
                return found;
            }
            let device = (field(9), field(10));
            let contents = archive[contents..contents + size].to_vec();
            found.push(Found { name, mode: field(1), device, contents });
        }
    }

    #[test]
    fn a_reader_of_the_format_finds_what_was_written() {
        // Every length that matters for the padding, of the name and of the contents.
        for length in 0..9 {
            let (name, contents) = ("n".repeat(length + 1), vec![7u8; length]);
            let mut archive = Archive::default();
            archive.folder("dev");
            archive.device("dev/console", 5, 1);
            archive.file(&name, true, &contents).unwrap();
            archive.file("plain", false, b"text").unwrap();
            let entry = |name: &str, mode, device, contents: &[u8]| Found {
                name: name.to_owned(),
                mode,
                device,
                contents: contents.to_vec(),
            };
            assert_eq!(
                read(&archive.finish()),
                [
                    entry("dev", 0o040_755, (0, 0), b""),
                    entry("dev/console", 0o020_600, (5, 1), b""),
                    entry(&name, 0o100_755, (0, 0), &contents),
                    entry("plain", 0o100_644, (0, 0), b"text"),
                ]
            );
        }
    }

    #[test]
    fn an_empty_archive_is_the_trailer() {
        let archive = Archive::default().finish();
        assert_eq!(read(&archive), []);
        assert_eq!(archive.len() % 4, 0);
    }

    #[test]
    fn numbers_of_entries_differ() {
        let mut archive = Archive::default();
        archive.folder("a");
        archive.folder("b");
        let bytes = archive.finish();
        // The kernel takes entries with equal inode numbers for hard links.
        let second = (110 + 2usize).next_multiple_of(4);
        assert_ne!(&bytes[6..14], &bytes[second + 6..second + 14]);
    }
}
