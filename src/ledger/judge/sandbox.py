"""The jail that an answer's process puts itself into before it runs a line of the answer.

Four layers, each without root and none of them enough alone: resource limits; no capabilities; Landlock, which leaves
the libraries readable and nothing writable (Linux 5.13, more of it in later versions); and a seccomp filter against new
processes, sockets, signals to others and changes of file metadata. Everything here is the standard library and ctypes,
for Linux on x86_64 and aarch64; elsewhere only the limits remain, and ``layers_available`` says so.

Sources: landlock(7), seccomp(2), capabilities(7), Linux include/uapi, the system call tables of both architectures.
"""

import ctypes
import errno
import os
import platform
import socket
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

try:
    import resource
except ImportError:  # Windows and the browser
    resource = None

LAYERS = ("limits", "capabilities", "landlock", "seccomp")

_LINUX = sys.platform == "linux"
_MACHINE = {"x86_64": "x86_64", "AMD64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}.get(platform.machine())
_LIBC = ctypes.CDLL(None, use_errno=True) if _LINUX else None
if _LIBC:
    _LIBC.syscall.restype = ctypes.c_long

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38


def layers_available() -> dict[str, str]:
    """Each layer that this system offers, with a word on how far it goes there."""
    found = {}
    if resource:
        found["limits"] = "memory, CPU time, files" if _LINUX else "CPU time, files; no limit on memory"
    if _LINUX and _MACHINE:
        found["capabilities"] = "none kept but reading"
        abi = landlock_abi()
        if abi:
            network = ", TCP" if abi >= 4 else ""
            found["landlock"] = f"ABI {abi}: files{network}{', signals' if abi >= 6 else ''}"
        if _seccomp_offered():
            found["seccomp"] = "processes, sockets, signals, file metadata"
    return found


def enter(memory_mb: int, cpu_seconds: int, ruleset: int | None, layers: Iterable[str] = LAYERS) -> tuple[str, ...]:
    """Put this process into the jail for good and return the layers that hold.

    ``memory_mb`` is what it may use beyond what it has now; ``ruleset`` comes from ``landlock_ruleset``. A layer that
    the system refuses is left out of the answer; whoever called decides whether to go on without it.
    """
    # The limits come first: the memory in use is read from /proc, which Landlock hides.
    steps: dict[str, Callable[[], bool]] = {
        "limits": lambda: set_limits(memory_mb, cpu_seconds),
        "capabilities": drop_capabilities,
        "landlock": lambda: ruleset is not None and landlock_enter(ruleset),
        "seccomp": seccomp_enter,
    }
    return tuple(name for name, step in steps.items() if name in layers and step())


def set_limits(memory_mb: int, cpu_seconds: int) -> bool:
    """Limit memory, CPU time, descriptors, written files and core dumps. The memory limit is Linux's alone."""
    if not resource:
        return False
    limits = [
        (resource.RLIMIT_CPU, cpu_seconds, cpu_seconds + 1),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_NOFILE, 64, 64),
        (resource.RLIMIT_CORE, 0, 0),
    ]
    if _LINUX:
        pages = Path("/proc/self/statm").read_text().split()
        size, data = (int(pages[i]) * resource.getpagesize() + (memory_mb << 20) for i in (0, 5))
        limits += [(resource.RLIMIT_AS, size, size), (resource.RLIMIT_DATA, data, data)]
    try:
        for what, soft, hard in limits:
            most = resource.getrlimit(what)[1]
            hard = hard if most == resource.RLIM_INFINITY else min(hard, most)
            resource.setrlimit(what, (min(soft, hard), hard))
    except (OSError, ValueError):
        return False
    return True


def drop_capabilities() -> bool:
    """Give up every capability but reading, which a root judge needs to import libraries that another user owns."""
    if not (_LINUX and _MACHINE):
        return False
    header = struct.pack("<Ii", 0x20080522, 0)
    now = ctypes.create_string_buffer(24)
    if _LIBC.syscall(_number("capget"), header, now):
        return False
    dac_read_search = struct.unpack("<6I", now.raw)[1] & (1 << 2)
    kept = struct.pack("<6I", dac_read_search, dac_read_search, 0, 0, 0, 0)
    return _LIBC.syscall(_number("capset"), header, kept) == 0


# Landlock's three system calls have the same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_FILE_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}


def landlock_abi() -> int:
    """The version of Landlock that the kernel offers; 0 without."""
    if not _LINUX:
        return 0
    return max(0, _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1)))


def landlock_ruleset(whole: Iterable[str], listed: Iterable[str] = (), writable: Iterable[str] = ()) -> int | None:
    """A ruleset that allows reading below ``whole``, listing below ``listed``, writing to ``writable``, no more.

    Returns its descriptor, or None where the system has no Landlock. It denies every right that the kernel's version
    knows, execution, TCP, abstract Unix sockets and signals out of the jail included.
    """
    abi = landlock_abi()
    if not abi:
        return None
    attributes = [(1 << _FILE_RIGHTS_BY_ABI.get(abi, 16)) - 1]
    attributes += [0b11] if abi >= 4 else []  # bind and connect
    attributes += [0b11] if abi >= 6 else []  # abstract sockets and signals
    packed = struct.pack(f"<{len(attributes)}Q", *attributes)
    ruleset = _LIBC.syscall(_CREATE_RULESET, packed, ctypes.c_size_t(len(packed)), ctypes.c_uint(0))
    if ruleset < 0:
        return None
    rules = [(path, _READ_FILE | _READ_DIR) for path in whole]
    rules += [(path, _READ_DIR) for path in listed]
    rules += [(path, _READ_FILE | _WRITE_FILE) for path in writable]
    for path, rights in rules:
        _allow(ruleset, path, rights)
    return ruleset


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Add one rule; a path that is not there is passed over."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= ~_READ_DIR
        rule = struct.pack("<Qi", rights, fd)
        if _LIBC.syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint(0)):
            raise OSError(ctypes.get_errno(), "landlock_add_rule", path)
    finally:
        os.close(fd)


def landlock_enter(ruleset: int) -> bool:
    """Put this process under ``ruleset``."""
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    return _LIBC.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0)) == 0


#: What Python and its libraries read beside their own folders.
SYSTEM_PATHS = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/nix/store",
    "/usr/share/fonts",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/dev/random",
    "/dev/urandom",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/devices/system/cpu",
)


def library_paths() -> list[str]:
    """The folders that hold Python, its libraries and the system's, resolved, each once."""
    named = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    named += [os.path.join(prefix, "lib") for prefix in (sys.prefix, sys.base_prefix)]
    named += [*sys.path, *os.environ.get("LD_LIBRARY_PATH", "").split(":"), *SYSTEM_PATHS]
    resolved = dict.fromkeys(os.path.realpath(path) for path in named if os.path.isabs(path) and os.path.exists(path))
    return [path for path in resolved if path != "/"]


def hidden_paths(extra: Iterable[str | os.PathLike] = ()) -> list[str]:
    """What no answer may read: this package, the folder of the course that it lies in, the home folder, and ``extra``.

    ``readable`` allows the libraries inside these all the same.
    """
    package = Path(__file__).resolve().parents[1]
    course = package.parents[1]
    inside = [course] if package.parent.name == "src" and (course / "pyproject.toml").is_file() else []
    return [os.path.realpath(path) for path in (package, *inside, Path.home(), *extra)]


def course_copies(roots: Iterable[str | os.PathLike]) -> list[Path]:
    """Every other place from which this course could be imported, by its package: in ``roots``, folders of libraries,
    and in the site-packages below them."""
    folders = [place for root in roots if os.path.isdir(root) for place in (root, *_site_packages(root))]
    parts = ("exercises", "reference", "account", "judge")
    found = (os.path.realpath(os.path.join(folder, "ledger")) for folder in folders)
    return [Path(path) for path in dict.fromkeys(found) if any(os.path.isdir(os.path.join(path, p)) for p in parts)]


def _site_packages(root: str | os.PathLike) -> list[str]:
    """The folders for installed packages in ``root``, and in those in it that belong to a version of Python."""
    names = os.listdir(root)
    found = [name for name in names if name.endswith("-packages")]
    for version in (name for name in names if name.startswith("python3")):
        found += [os.path.join(version, name) for name in ("site-packages", "dist-packages")]
    return [os.path.join(root, name) for name in found]


def around(package: Path) -> list[Path]:
    """What to hide with a package of the course: where it lies as source, the folder that it is imported from and the
    course around that."""
    source = package.parent
    if source.name.endswith("-packages"):
        return [package]
    return [package, source, source.parent] if source.name == "src" else [package, source]


def readable(roots: Iterable[str], hidden: Iterable[str]) -> tuple[list[str], list[str]]:
    """What of ``roots`` may be read: ``(whole, listed)``, folders to read entirely and folders to list only.

    A root that holds a hidden path is not allowed itself; its entries are, one by one, down to the hidden path. The
    more specific path wins, so a library inside a hidden folder stays readable. The folders on the way are listed,
    without which Python could import nothing from them; names below them, the hidden ones too, can then be seen.
    """
    whole, listed = [], []
    hidden = {os.path.realpath(path) for path in hidden}

    def visit(path: str) -> None:
        if path in hidden:
            return
        if not any(Path(path) in Path(secret).parents for secret in hidden):
            whole.append(path)
            return
        listed.append(path)
        with os.scandir(path) as entries:
            # A link is passed over: its target is allowed by its own place, or not at all.
            children = sorted(entry.path for entry in entries if not entry.is_symlink())
        for child in children:
            visit(child)

    for root in dict.fromkeys(os.path.realpath(root) for root in roots):
        visit(root)
    return whole, listed


# name: (x86_64, aarch64); None where the architecture has no such call.
_SYSCALLS: dict[str, tuple[int | None, int | None]] = {
    "capget": (125, 90),
    "capset": (126, 91),
    "clone": (56, 220),
    "clone3": (435, 435),
    "kill": (62, 129),
    "tgkill": (234, 131),
    "prlimit64": (302, 261),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "prctl": (157, 167),
}
_DENIED: dict[str, tuple[int | None, int | None]] = {
    # new processes and programs
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    # other processes: signals, memory, scheduling
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    # ways out: sockets, shared memory, queues
    "socket": (41, 198),
    "socketpair": (53, 199),
    "io_uring_setup": (425, 425),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # its own limits
    "setrlimit": (160, 164),
    # metadata of files, which Landlock leaves alone, and truncation, which its first versions do
    "truncate": (76, 45),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    # the kernel and the system
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "iopl": (172, None),
    "ioperm": (173, None),
}
_SYSCALLS |= _DENIED
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_CLONE_THREAD = 0x10000
#: By call the argument that holds the command, and the commands: fcntl's F_SETOWN, F_SETSIG, F_SETOWN_EX and ioctl's
#: TIOCSTI, TIOCLINUX, FIOSETOWN send signals and keys to others; without prctl's PR_SET_PDEATHSIG a process would
#: outlive a judge that is killed.
_DENIED_COMMANDS = {
    "fcntl": (1, (8, 10, 15)),
    "ioctl": (1, (0x5412, 0x541C, 0x8901)),
    "prctl": (0, (_PR_SET_PDEATHSIG,)),
}

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _EPERM, _ENOSYS, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS, 0x80000000
_AT_NUMBER, _AT_ARCH, _AT_ARGS = 0, 4, 16

Instruction = tuple[int, int, int, int]


def _number(name: str) -> int | None:
    return _SYSCALLS[name][0 if _MACHINE == "x86_64" else 1]


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> Instruction:
    """One instruction of classic BPF; the jumps count the instructions to pass over."""
    return code, if_true, if_false, value


def _for_call(name: str, body: list[Instruction]) -> list[Instruction]:
    """``body``, which ends in a return, for one system call; the number is in the accumulator before and after."""
    number = _number(name)
    return [] if number is None else [_op(_EQUAL, number, 0, len(body)), *body]


def seccomp_program() -> list[Instruction]:
    """The filter: what it does not name is allowed, so libraries and threads work."""
    deny, allow = _op(_RETURN, _EPERM), _op(_RETURN, _ALLOW)
    program = [_op(_LOAD, _AT_ARCH), _op(_EQUAL, _AUDIT_ARCH[_MACHINE], 1), _op(_RETURN, _KILL), _op(_LOAD, _AT_NUMBER)]
    if _MACHINE == "x86_64":
        program += [_op(_AT_LEAST, _X32_BIT, 0, 1), deny]
    # A thread is a clone with CLONE_THREAD. clone3 keeps its flags in memory; without it glibc falls back to clone.
    program += _for_call("clone3", [_op(_RETURN, _ENOSYS)])
    program += _for_call("clone", [_op(_LOAD, _AT_ARGS), _op(_ANY_BIT, _CLONE_THREAD, 0, 1), allow, deny])
    for name in ("kill", "tgkill"):
        program += _for_call(name, [_op(_LOAD, _AT_ARGS), _op(_EQUAL, os.getpid(), 0, 1), allow, deny])
    # prlimit64 may ask (its third argument, 64 bits wide, is null) but not set.
    new_limit = _AT_ARGS + 2 * 8
    asks = [_op(_LOAD, new_limit), _op(_EQUAL, 0, 0, 3), _op(_LOAD, new_limit + 4), _op(_EQUAL, 0, 0, 1), allow, deny]
    program += _for_call("prlimit64", asks)
    for name, (place, commands) in _DENIED_COMMANDS.items():
        body = [_op(_LOAD, _AT_ARGS + 8 * place)]
        for command in commands:
            body += [_op(_EQUAL, command, 0, 1), deny]
        program += _for_call(name, [*body, allow])
    for name in _DENIED:
        program += _for_call(name, [deny])
    return [*program, allow]


def seccomp_enter() -> bool:
    """Put this process, and the threads that it starts later, under the filter."""
    if not (_LINUX and _MACHINE):
        return False
    program = seccomp_program()
    packed = b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    return _LIBC.prctl(_PR_SET_SECCOMP, 2, header, 0, 0) == 0


def _seccomp_offered() -> bool:
    """Whether the kernel takes filters: with a null program it complains about the address, not about the request."""
    return _LIBC.prctl(_PR_SET_SECCOMP, 2, None, 0, 0) == -1 and ctypes.get_errno() == errno.EFAULT


def adopt_orphans() -> None:
    """Make this process the parent of whatever its descendants leave behind, and unreadable to them (Linux)."""
    if _LINUX:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends (Linux)."""
    if _LINUX:
        _LIBC.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)


#: How a system says no; EROFS is the file system of a bubblewrap.
_REFUSED = (errno.EPERM, errno.EACCES, errno.EXDEV, errno.EROFS)


class Probe(NamedTuple):
    """One forbidden action that was tried in the jail: which layer stands against it, and whether it was denied."""

    action: str
    layer: str
    denied: bool
    how: str


class Targets(NamedTuple):
    """What the probes aim at, planted by the judge outside the jail: a file and a folder of its own, two listening
    sockets, and a process to signal; and a source file of each copy of the course, of this one
    first."""

    file: str
    folder: str
    sources: list[str]
    port: int
    unix: str
    process: int
    memory_mb: int


def self_test(targets: Targets) -> list[Probe]:
    """Try every forbidden action but running a program, in this process, and note which were denied.

    Where nothing is denied it leaves no more than a touched file in the planted folder.
    """
    actions: list[tuple[str, str, Callable[[], object]]] = [
        ("use more memory than allowed", "limits", lambda: bytearray((targets.memory_mb + 64) << 20)),
        ("raise a limit", "limits", lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))),
        ("read a file", "landlock", lambda: Path(targets.file).read_bytes()),
        ("list a folder", "landlock", lambda: os.listdir(targets.folder)),
        *(
            ("read the course's code" + f", {source}" * bool(number), "landlock", Path(source).read_bytes)
            for number, source in enumerate(targets.sources)
        ),
        ("open a file for writing", "landlock", lambda: os.close(os.open(targets.file, os.O_WRONLY))),
        ("make a file", "landlock", lambda: open(os.path.join(targets.folder, "made"), "x").close()),
        ("rename a file", "landlock", lambda: os.rename(targets.file, targets.file)),
        ("read another process's memory", "landlock", lambda: _try_memory(targets.process)),
        ("change a file's mode", "seccomp", lambda: os.chmod(targets.file, 0o600)),
        ("fork", "seccomp", _try_fork),
        ("connect by TCP", "seccomp", lambda: socket.create_connection(("127.0.0.1", targets.port), 1).close()),
        ("send by UDP", "seccomp", lambda: _try_udp(targets.port)),
        ("connect to a Unix socket", "seccomp", lambda: _try_unix(targets.unix)),
        ("signal another process", "seccomp", lambda: os.kill(targets.process, 0)),
        ("trace another process", "seccomp", lambda: _try_trace(targets.process)),
    ]
    return [attempt(*action) for action in actions]


def attempt(action: str, layer: str, do: Callable[[], object]) -> Probe:
    """Try one action. Only a refusal counts as denied; an action that fails for another reason does not."""
    try:
        do()
    except MemoryError:
        return Probe(action, layer, True, "MemoryError")
    except ValueError as error:
        return Probe(action, layer, "not allowed" in str(error), str(error))
    except OSError as error:
        return Probe(action, layer, error.errno in _REFUSED, os.strerror(error.errno))
    return Probe(action, layer, False, "it worked")


def try_program() -> Probe:
    """Try to become another program. Where that works it never returns."""
    return attempt("run a program", "seccomp", lambda: os.execv(sys.executable, [sys.executable, "-I", "-c", ""]))


def _try_fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _try_memory(process: int) -> None:
    """Read the memory of ``process``, or of this one's parent where a bubblewrap hides all others."""
    seen = process if os.path.exists(f"/proc/{process}") else os.getppid()
    open(f"/proc/{seen}/mem", "rb").close()


def _try_udp(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"probe", ("127.0.0.1", port))


def _try_unix(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def _try_trace(process: int) -> None:
    seize = 0x4206
    if not _LIBC:
        raise OSError(errno.EPERM, "no ptrace here")
    if _LIBC.ptrace(seize, process, None, None):
        raise OSError(ctypes.get_errno(), "ptrace")
