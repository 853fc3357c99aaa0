"""The command `stillpoint`, for gdb and lldb: the domains of a process or of a core file, their readers, and who is in the way.

    gdb PROGRAM CORE -ex 'source stillpoint_rcu.py' -ex stillpoint
    lldb PROGRAM --core CORE -o 'command script import stillpoint_rcu.py' -o stillpoint

Debian's lldb may not find its own modules: then set PYTHONPATH to /usr/lib/llvm-14/lib/python3.11/dist-packages.

For 64-bit programs on little-endian processors. It needs no debug information: the library has a table of offsets in the section `stillpoint_layout`. A process is only read, and none of
its functions is called. Numbers of a process that runs on may be of different moments.
"""

import struct

try:
    import gdb
except ImportError:
    gdb = None  # this is lldb

VERSION = 2
IDLE = 1 << 63
AWAY = (1 << 64) - 1
ENDED = 1 << 63
NAMES = [
    ("registry", ["chunks", "number", "begin", "words", "word", "claimed", "block", "bits", "first", "slot"], 3),
    ("entry", ["word", "core"], 1),
    ("core", ["id", "name", "protocol", "counters", "shared_counters"], 1),
    ("protocol", ["token", "records"], 1),
    ("record", ["state", "kind", "tid", "first", "further", "furthers", "further_size", "exclusive", "exclusives",
                "more", "block_further", "block_furthers", "older"], 1),
    ("counters", ["retired", "freed", "pending", "pending_bytes", "pushed", "removed"], 1),
]


class Unreadable(Exception):
    """What is there is not what the script expects, or not there."""


class Reader:
    """Reads the structures of the library, by `read(address, length)`, from the table at `address`."""

    def __init__(self, read, address):
        self.read = read
        if read(address, 8) != b"stillpnt":
            raise Unreadable("the section stillpoint_layout does not begin as it should: is the core file complete?")
        version, self.size, self.entries = (self.word(address + offset) for offset in (8, 16, 24))
        if version != VERSION:
            raise Unreadable(f"the program's table has version {version}, this script reads {VERSION}: "
                             "take the script of the library's release")
        address += 32
        for name, fields, times in NAMES:
            tables = []
            for _ in range(times):
                tables.append({field: self.word(address + 8 * at) for at, field in enumerate(fields)})
                address += 8 * len(fields)
            setattr(self, name, tables if times > 1 else tables[0])

    def word(self, address):
        return struct.unpack("<Q", self.read(address, 8))[0]

    def half(self, address):
        return struct.unpack("<I", self.read(address, 4))[0]

    def slots(self, registry, number, claimed_only=True):
        """The addresses of a registry's claimed slots. `number` is that of its table."""
        table = self.registry[number]
        for at in range(table["number"]):
            chunk = self.word(registry + table["chunks"] + 8 * at)
            if chunk == 0:
                return
            begin, words = self.word(chunk + table["begin"]), self.word(chunk + table["words"])
            for word in range(max(begin, 1)):
                claimed = self.word(words + word * table["word"] + table["claimed"])
                block = self.word(words + word * table["word"] + table["block"])
                for bit in range(table["first"] if begin == 0 else table["bits"]):
                    if block and (claimed >> bit & 1 or not claimed_only):
                        yield block + bit * table["slot"]

    def domains(self):
        for entry in self.slots(self.entries, 0):
            if self.word(entry + self.entry["word"]) & ENDED == 0:
                yield Domain(self, self.word(entry + self.entry["core"]))


class Domain:
    def __init__(self, reader, core):
        self.reader, self.core = reader, core
        fields = reader.core
        self.id = reader.word(core + fields["id"])
        name = core + fields["name"]
        self.name = reader.read(reader.word(name), reader.word(name + 8)).decode("utf-8", "replace")
        self.protocol = core + fields["protocol"]
        self.token = reader.word(self.protocol + reader.protocol["token"])
        counters = list(reader.slots(core + fields["counters"], 2, claimed_only=False))
        counters.append(core + fields["shared_counters"])
        total = lambda field: sum(reader.word(at + reader.counters[field]) for at in counters)
        # Callbacks are counted where they are pushed, and where they are called.
        self.pending = (total("pending") + total("pushed") - total("removed")) % (1 << 64)
        self.pending_bytes = total("pending_bytes") % (1 << 64)

    def readers(self):
        records = self.reader.slots(self.protocol + self.reader.protocol["records"], 1)
        return sorted((Record(self.reader, at) for at in records), key=lambda record: record.tid)

    def lines(self, thread_of):
        """The report. `thread_of` returns the debugger's name of the thread with this id, or None."""
        readers = self.readers()
        yield f"domain `{self.name}` ({self.id}, at {self.protocol:#x}): token {self.token}"
        yield f"  waiting to be freed: {self.pending} ({self.pending_bytes} bytes); readers: {len(readers)}"
        for record in readers:
            thread = thread_of(record.tid)
            where = f"thread {record.tid}" + (f" ({thread})" if thread else ", which is not there")
            if record.tid == 0:
                where = "a slot of no thread"
            way = "  <-- IN THE WAY" if record.is_open and record.state < self.token else ""
            yield f"  {where}: {record.says(self.token)}{way}"
            if record.protects:
                yield "    protects " + ", ".join(f"{address:#x}" for address in record.protects)


class Record:
    LIGHT = 2

    def __init__(self, reader, at):
        fields = reader.record
        self.state = reader.word(at + fields["state"])
        self.kind = reader.half(at + fields["kind"]) & ~self.LIGHT
        self.tid = reader.half(at + fields["tid"])
        slots = [at + fields["first"]]
        slots += [at + fields["exclusive"] + 8 * number for number in range(fields["exclusives"])]
        slots += [at + fields["further"] + fields["further_size"] * number for number in range(fields["furthers"])]
        block = reader.word(at + fields["more"])
        while block:
            further = block + fields["block_further"]
            slots += [further + fields["further_size"] * number for number in range(fields["block_furthers"])]
            block = reader.word(block + fields["older"])
        self.protects = sorted(filter(None, map(reader.word, slots)))
        self.is_open = 0 < self.state < IDLE

    def says(self, token):
        if self.is_open:
            behind = token - self.state
            what = "online, last report at" if self.kind == 1 else "a region open since"
            return f"{what} token {self.state}, {behind} behind"
        if self.state == AWAY:
            return "offline" if self.kind == 1 else "idle, away"
        vouched = self.state & ~IDLE
        return "idle" + (f", has seen token {vouched}" if vouched else "")


def report(read, sections, thread_of):
    """The lines for all tables. A section has one for each version of the library in a file."""
    count = 0
    for address, end in sections:
        while address < end:
            reader = Reader(read, address)
            address += reader.size
            for domain in reader.domains():
                count += 1
                yield from domain.lines(thread_of)
    if not sections:
        yield "no section stillpoint_layout: the program does not use the library's domains, or its file is not loaded"
    elif count == 0:
        yield "no domains"


def in_gdb():
    def read(address, length):
        try:
            return bytes(gdb.selected_inferior().read_memory(address, length))
        except gdb.MemoryError as error:
            raise Unreadable(str(error))

    def thread_of(tid):
        for thread in gdb.selected_inferior().threads():
            if tid == thread.ptid[1]:
                return f"gdb's thread {thread.num}"
        return None

    class Command(gdb.Command):
        """The domains of stillpoint in this process: their readers, and who is in the way."""

        def __init__(self):
            super().__init__("stillpoint", gdb.COMMAND_DATA)

        def invoke(self, argument, from_tty):
            # A line is: 0xBEGIN - 0xEND is NAME [in FILE]
            lines = (line.split() for line in gdb.execute("info files", to_string=True).splitlines())
            sections = [(int(line[0], 16), int(line[2], 16)) for line in lines if "stillpoint_layout" in line[4:5]]
            try:
                for line in report(read, sections, thread_of):
                    gdb.write(line + "\n")
            except Unreadable as error:
                raise gdb.GdbError(f"stillpoint: {error}")

    Command()


def lldb_command(debugger, _argument, result, _):
    import lldb

    target = debugger.GetSelectedTarget()
    process = target.GetProcess()

    def read(address, length):
        error = lldb.SBError()
        found = process.ReadMemory(address, length, error)
        if error.Fail():
            raise Unreadable(str(error))
        return found

    def thread_of(tid):
        thread = process.GetThreadByID(tid)
        return f"lldb's thread {thread.GetIndexID()}" if thread.IsValid() else None

    found = (module.FindSection("stillpoint_layout") for module in target.module_iter())
    begun = [(section.GetLoadAddress(target), section.GetByteSize()) for section in found if section.IsValid()]
    sections = [(address, address + size) for address, size in begun]
    try:
        for line in report(read, sections, thread_of):
            result.AppendMessage(line)
    except Unreadable as error:
        result.SetError(f"stillpoint: {error}")


def __lldb_init_module(debugger, _):
    debugger.HandleCommand(f"command script add --overwrite --function {__name__}.lldb_command stillpoint")


if gdb:
    in_gdb()
